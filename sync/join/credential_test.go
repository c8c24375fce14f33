// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/google/go-cmp/cmp"
)

func TestATokenIsReadBackOnlyForTheClusterItIsFor(t *testing.T) {
	ca, _, err := cert.GenerateSelfSignedCertKey("b", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	peer := Cluster{ID: "b", Server: "https://b:6443", CAData: ca, Namespace: "comity-system"}
	kubeconfig, err := writeKubeconfig("peer-a", peer, "secret")
	if err != nil {
		t.Fatal(err)
	}
	moved, reissued := peer, peer
	moved.Server, reissued.CAData = "https://elsewhere:6443", []byte("other")
	cases := []struct {
		name       string
		kubeconfig string
		peer       Cluster
		want       string
	}{
		{"the same cluster", string(kubeconfig), peer, "secret"},
		{"another server", string(kubeconfig), moved, ""},
		{"another authority", string(kubeconfig), reissued, ""},
		{"garbage", "{", peer, ""},
		{"nothing", "", peer, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := readToken([]byte(c.kubeconfig), c.peer); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAStepIsOneLine(t *testing.T) {
	steps := []Step{
		{Cluster: "a", Kind: "Namespace", Name: "comity-a", Verb: Unchanged},
		{Cluster: "b", Kind: "Secret", Namespace: "comity-system", Name: "peer-a", Verb: Created, Note: "new credential"},
	}
	var got []string
	for _, step := range steps {
		got = append(got, step.String())
	}
	want := []string{"a: Namespace comity-a unchanged", "b: Secret comity-system/peer-a created (new credential)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOptionsHaveDefaults(t *testing.T) {
	if opts := (Options{}).withDefaults(); opts.Expiry != DefaultExpiry || opts.Now == nil || opts.Progress == nil {
		t.Errorf("got %+v", opts)
	}
}
