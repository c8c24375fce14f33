// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// PeerName is the name of what belongs to one peer: its ServiceAccount, Role and
// RoleBindings, and the Secret with the credential for it. At most 63
// characters: longer ones end in a hash behind a dot, which no id contains.
func PeerName(id ClusterID) string {
	if full := "peer-" + string(id); len(full) <= 63 {
		return full
	}
	sum := sha256.Sum256([]byte(id))
	return "peer-" + strings.TrimRight(string(id)[:17], "-") + "." + hex.EncodeToString(sum[:20])
}
