// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"encoding/base64"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

func jwt(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func TestReadToken(t *testing.T) {
	for _, c := range []struct {
		name, token string
		ok          bool
	}{
		{"a ServiceAccount token", jwt(`{"iat":1000,"exp":2000,"sub":"system:serviceaccount:comity-system:peer-a","aud":["k"]}`), true},
		{"a token that does not expire", jwt(`{"iat":1000,"sub":"system:serviceaccount:comity-system:peer-a"}`), false},
		{"a user's token", jwt(`{"iat":1000,"exp":2000,"sub":"alice"}`), false},
		{"an account without a name", jwt(`{"iat":1000,"exp":2000,"sub":"system:serviceaccount:comity-system"}`), false},
		{"an expiry before its issue", jwt(`{"iat":2000,"exp":1000,"sub":"system:serviceaccount:a:b"}`), false},
		{"no JWT", "static-token", false},
		{"three parts of nonsense", "a.b.c", false},
		{"nothing", "", false},
	} {
		claims, ok := readToken(c.token)
		if ok != c.ok {
			t.Errorf("%s: got %v", c.name, ok)
		}
		if ok && (claims.namespace != "comity-system" || claims.name != "peer-a") {
			t.Errorf("%s: account %s/%s", c.name, claims.namespace, claims.name)
		}
	}
}

func TestATokenIsRenewedAtThreeFifthsOfItsLife(t *testing.T) {
	claims := tokenClaims{Issued: 1000, Expires: 2000}
	for second, want := range map[int64]bool{1000: false, 1599: false, 1600: true, 1999: true, 3000: true} {
		if got := claims.due(time.Unix(second, 0)); got != want {
			t.Errorf("at second %d: %v", second, got)
		}
	}
}

func TestOnlyTheTokenOfTheSecretChanges(t *testing.T) {
	before := secret("peer-b", 0, "b", "prod", kubeconfig(t))
	after, err := withToken(&before, "renewed")
	if err != nil {
		t.Fatal(err)
	}
	config, f := sanitize(after.Data[secretKey])
	if f != nil {
		t.Fatal(f)
	}
	if config.BearerToken != "renewed" || config.Host != "https://10.0.0.1:6443" {
		t.Errorf("got %v", config)
	}
	if old, _ := clientcmd.Load(before.Data[secretKey]); old.AuthInfos["b"].Token != token {
		t.Error("the cached Secret was changed")
	}
	if _, err := withToken(&before, ""); err == nil {
		t.Error("an empty token was written")
	}
}
