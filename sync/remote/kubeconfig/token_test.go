// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/base64"
	"testing"
	"time"
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
		claims, ok := ReadToken(c.token)
		if ok != c.ok {
			t.Errorf("%s: got %v", c.name, ok)
		}
		if ok && (claims.Namespace != "comity-system" || claims.Name != "peer-a") {
			t.Errorf("%s: account %s/%s", c.name, claims.Namespace, claims.Name)
		}
	}
}

func TestATokenIsRenewedAtThreeFifthsOfItsLife(t *testing.T) {
	claims := Claims{Issued: 1000, Expires: 2000}
	for second, want := range map[int64]bool{1000: false, 1599: false, 1600: true, 1999: true, 3000: true} {
		if got := claims.Due(time.Unix(second, 0)); got != want {
			t.Errorf("at second %d: %v", second, got)
		}
	}
}

func TestOnlyTheTokenChanges(t *testing.T) {
	before := config(t)
	after, err := WithToken(before, "renewed")
	if err != nil {
		t.Fatal(err)
	}
	got, f := Sanitize(after)
	if f != nil {
		t.Fatal(f)
	}
	if got.BearerToken != "renewed" || got.Host != "https://10.0.0.1:6443" {
		t.Errorf("got %v", got)
	}
	if _, err := WithToken(before, ""); err == nil {
		t.Error("an empty token was written")
	}
}
