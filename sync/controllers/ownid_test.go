// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownIDPeers are no members, and perhaps a Secret with this cluster's id.
type ownIDPeers struct {
	Peers
	claim types.UID
}

func (p *ownIDPeers) OwnIDClaim() types.UID { return p.claim }

// FAULT 27: a cluster is started with the id of a peer.
func TestAClusterWithTheIDOfAPeerPublishesNothingAndDoubtsWhatItImported(t *testing.T) {
	for name, tc := range map[string]struct {
		none     bool      // no Secret has this cluster's id
		uid      types.UID // recorded in the Secret
		records  []client.Object
		hub      bool
		holder   types.UID // of the Lease in the hub
		doubtful bool
		problem  string
	}{
		"no Peer has its id":                               {none: true},
		"a Peer of another cluster has its id":             {uid: "theirs", doubtful: true, problem: "Peer a names another cluster (its kube-system namespace has the UID theirs"},
		"a Peer has its id, under which it published":      {uid: "theirs", records: []client.Object{memberRecord("mine")}},
		"the same, after its store was restored":           {uid: "theirs", records: []client.Object{memberRecord("before")}},
		"in a hub, no Peer has its id":                     {hub: true, holder: "mine", none: true},
		"in a hub, a Peer has its id":                      {hub: true, uid: "theirs", doubtful: true, problem: "Peer a names another cluster"},
		"in a hub, the Lease is of that cluster":           {hub: true, holder: "theirs", records: []client.Object{memberRecord("theirs")}, uid: "theirs", doubtful: true, problem: "Lease comity-a/a in the exchange is of another cluster"},
		"in a hub, the Lease of that id is this cluster's": {hub: true, holder: "mine", records: []client.Object{memberRecord("mine")}, uid: "theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := inHub(t, tc.records...)
			b.hub = tc.hub
			b.claim.Store(tc.holder)
			if !tc.none {
				b.Peers = &ownIDPeers{claim: tc.uid}
			}
			if got := b.isIDDoubtful(t.Context()); got != tc.doubtful {
				t.Errorf("doubtful: %v, want %v", got, tc.doubtful)
			}
			problem := b.duplicate(t.Context())
			if (problem != "") != (tc.problem != "") || !strings.Contains(problem, tc.problem) {
				t.Errorf("got %q, want %q", problem, tc.problem)
			}
		})
	}
}
