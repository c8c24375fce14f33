// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// OnLost is what happens to the endpoints of a lost cluster that do not answer a
// probe either. It never applies to a cluster that is not Lost.
type OnLost string

// The values of AnnotationOnLost.
const (
	// OnLostWithdrawUnlessLast marks them not ready, unless no other cluster
	// has a ready endpoint. It is the default.
	OnLostWithdrawUnlessLast OnLost = "withdraw-unless-last"
	// OnLostWithdraw marks them not ready even if none is left.
	OnLostWithdraw OnLost = "withdraw"
	// OnLostKeep leaves them as they are.
	OnLostKeep OnLost = "keep"
)

// ParseOnLost reads the value of AnnotationOnLost; empty is the default. The
// error names what was expected, and comes with the default.
func ParseOnLost(text string) (OnLost, error) {
	switch v := OnLost(text); v {
	case "":
		return OnLostWithdrawUnlessLast, nil
	case OnLostWithdrawUnlessLast, OnLostWithdraw, OnLostKeep:
		return v, nil
	}
	return OnLostWithdrawUnlessLast, fmt.Errorf("%q is unknown; expected %s, %s or %s",
		text, OnLostWithdrawUnlessLast, OnLostWithdraw, OnLostKeep)
}
