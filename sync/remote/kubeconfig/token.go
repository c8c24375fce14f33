// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// renewAt is the part of its lifetime after which a token is renewed, so that a
// peer may be down for the rest of it.
const renewAt = 0.6

// WithToken is data with another token for its one user.
func WithToken(data []byte, token string) ([]byte, error) {
	config, err := clientcmd.Load(data)
	if err != nil || token == "" || len(config.AuthInfos) != 1 {
		return nil, fmt.Errorf("renew the token: expected one user and a new token")
	}
	for _, user := range config.AuthInfos {
		user.Token = token
	}
	out, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("renew the token: encode: %w", err)
	}
	return out, nil
}

// Claims is what a ServiceAccount token says of itself. It is not
// verified: it is our own, and only the peer's API server acts on it.
type Claims struct {
	Expires  int64    `json:"exp"`
	Issued   int64    `json:"iat"`
	Subject  string   `json:"sub"`
	Audience []string `json:"aud"`

	// Namespace and Name are those of the ServiceAccount.
	Namespace, Name string
}

// Due reports whether it is time to renew the token.
func (t Claims) Due(now time.Time) bool {
	lifetime := float64(t.Expires - t.Issued)
	return float64(now.Unix()) >= float64(t.Issued)+renewAt*lifetime
}

// ReadToken reads a ServiceAccount token that expires; false for any other.
func ReadToken(token string) (Claims, bool) {
	var claims Claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires <= claims.Issued || claims.Issued <= 0 {
		return claims, false
	}
	account, ok := strings.CutPrefix(claims.Subject, "system:serviceaccount:")
	if !ok {
		return claims, false
	}
	claims.Namespace, claims.Name, ok = strings.Cut(account, ":")
	return claims, ok && claims.Namespace != "" && claims.Name != ""
}
