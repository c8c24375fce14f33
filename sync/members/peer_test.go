// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// FAULT 27: each of these Peers is a member that is not read, with a condition that says
// why, and one event.
func TestFault27APeerThatIsRefusedIsAMemberThatIsNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*v1alpha1.Peer)
		reason  string
		message string
	}{
		"another clusterset": {func(p *v1alpha1.Peer) { p.Spec.ClusterSet = "staging" }, ReasonWrongClusterSet, `spec.clusterset is "staging"; expected "prod"`},
		"a misspelled Secret": {func(p *v1alpha1.Peer) { p.Spec.KubeconfigSecret = "pere-b" }, ReasonSecretMissing,
			"spec.kubeconfigSecret: Secret comity-system/pere-b does not exist"},
		"another UID": {func(p *v1alpha1.Peer) { p.Spec.ClusterUID = "uid-other" }, remote.ReasonClusterIDReused, "expected uid-other, as in Peer b"},
	} {
		t.Run(name, func(t *testing.T) {
			w := exporting(t, 1)
			w.status("b")
			told := w.times("cluster b")
			w.use(peer(c.change))
			w.await("it is not read", func() bool { return !w.member().Synced && w.condition(v1alpha1.PeerAccepted) == "False "+c.reason })
			if got := w.message(v1alpha1.PeerAccepted); !strings.Contains(got, c.message) || !strings.Contains(got, "remedy: ") || !strings.Contains(got, "is kept") {
				t.Errorf("message %q", got)
			}
			if got := w.condition(v1alpha1.PeerConnected); got != "False "+c.reason {
				t.Errorf("Connected: %s", got)
			}
			if diff := cmp.Diff([]string{"Warning " + c.reason}, w.kinds()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if w.times("cluster b") == told || w.exports(keyOf(0)) {
				t.Error("it is read, or its change is not published")
			}
			w.use(peer())
			w.await("once corrected, it is read", func() bool { return w.member().Synced && w.condition(v1alpha1.PeerConnected) == "True Connected" })
			if got := w.condition(v1alpha1.PeerAccepted); got != "True Accepted" {
				t.Errorf("Accepted: %s", got)
			}
		})
	}
}

func TestOnlyAKubeconfigThatIsRefusedLeavesTheConnectionInUse(t *testing.T) {
	w := exporting(t, 1)
	before, bad := w.active(), w.server.secret()
	bad.Data[kubeconfig.SecretKey] = []byte("garbage")
	w.secrets(bad)
	if w.active() != before || !w.member().Synced {
		t.Error("it is not read any more")
	}
	if a, c := w.condition(v1alpha1.PeerAccepted), w.condition(v1alpha1.PeerConnected); a != "False InvalidKubeconfig" || c != "True Connected" {
		t.Errorf("Accepted: %s, Connected: %s", a, c)
	}
	w.secrets() // deleted
	if w.member().Synced || w.exports(keyOf(0)) {
		t.Error("without its Secret it is read")
	}
	if a, c := w.condition(v1alpha1.PeerAccepted), w.condition(v1alpha1.PeerConnected); a != "False SecretMissing" || c != "False SecretMissing" {
		t.Errorf("Accepted: %s, Connected: %s", a, c)
	}
	terminating := w.server.secret()
	terminating.DeletionTimestamp = &metav1.Time{}
	w.secrets(terminating)
	if w.member().Synced {
		t.Error("it is read by a Secret that is being deleted")
	}
	w.use(peer())
	w.await("it is read once the Secret is back", func() bool { return w.member().Synced })
}

// FAULT 22: a kubeconfig that leads to another cluster of that id is refused, and all of the
// first one is kept, of which changes are still read.
func TestFault22AnotherClusterOfThatIDIsRefused(t *testing.T) {
	w := exporting(t, 2)
	w.status("b")
	other := newRemoteServer(t)
	other.put("memberrecords", memberRecord("uid-other"))
	before := w.active()
	w.secrets(other.secret())
	w.await("it is refused", func() bool {
		if !w.member().Synced || w.read(2) != 2 {
			t.Fatal("the first one is not read any more")
		}
		return w.condition(v1alpha1.PeerAccepted) == "False "+remote.ReasonClusterIDReused
	})
	if got := w.message(v1alpha1.PeerAccepted); !strings.Contains(got, "uid-b") || !strings.Contains(got, "uid-other") {
		t.Errorf("message %q", got)
	}
	if diff := cmp.Diff([]string{"Warning " + remote.ReasonClusterIDReused}, w.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.server.put("exportrecords", record(shared, 2))
	w.await("what the first one exports now is read", func() bool { return w.exports(keyOf(2)) })
	if w.active() != before || w.read(3) != 3 {
		t.Error("its connection is not in use any more")
	}
}

func TestAPeerThatIsAbsentOrTerminatingIsNoMember(t *testing.T) {
	for name, peers := range map[string][]v1alpha1.Peer{
		"absent":                  nil,
		"terminating":             {peer(func(p *v1alpha1.Peer) { p.DeletionTimestamp = &metav1.Time{} })},
		"terminating and removed": {peer(func(p *v1alpha1.Peer) { p.DeletionTimestamp, p.Spec.Removed = &metav1.Time{}, true })},
	} {
		t.Run(name, func(t *testing.T) {
			w := exporting(t, 1)
			connection, told := w.active(), w.times("cluster b")
			w.use(peers...)
			if len(w.set.Members()) > 0 || len(w.set.Removed()) > 0 || w.times("cluster b") != told+1 {
				t.Errorf("members %v, removed %v", w.set.Members(), w.set.Removed())
			}
			connection.Wait() // its connection ends
			w.clock.Step(24 * time.Hour)
			w.set.tick()
			w.use(peer())
			w.await("it is read again", func() bool { return w.member().Synced && w.exports(keyOf(0)) })
		})
	}
}

func TestARemovedPeerIsNoMemberAndIsListedAsRemoved(t *testing.T) {
	w := exporting(t, 1)
	w.listed["b"] = true
	removed := func(p *v1alpha1.Peer) { p.Spec = v1alpha1.PeerSpec{Removed: true} }
	w.use(peer(removed))
	if diff := cmp.Diff([]model.ClusterID{"b"}, w.set.Removed()); diff != "" || len(w.set.Members()) > 0 || len(w.set.Keys()) > 0 {
		t.Errorf("members %v, removed (-want +got):\n%s", w.set.Members(), diff)
	}
	if got := w.condition(v1alpha1.PeerRemoved); got != "False Removing" {
		t.Errorf("Removed: %s while an import lists it", got)
	}
	w.mu.Lock()
	delete(w.listed, "b")
	w.mu.Unlock()
	if got := w.condition(v1alpha1.PeerRemoved); got != "True Removed" || len(w.status("b").Conditions) != 1 {
		t.Errorf("Removed: %s of %v", got, w.status("b").Conditions)
	}
	if got := w.kinds(); len(got) > 0 {
		t.Errorf("events %q", got)
	}
	told := w.times("cluster b")
	w.use()
	if len(w.set.Removed()) > 0 || w.times("cluster b") != told+1 {
		t.Errorf("removed: %v", w.set.Removed())
	}
}

func TestAPeerWithOurOwnIDIsNoMember(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.Peer)
		claims bool
	}{
		"of another cluster":       {func(*v1alpha1.Peer) {}, true},
		"of this cluster":          {func(p *v1alpha1.Peer) { p.Spec.ClusterUID = "uid-a" }, false},
		"that was removed":         {func(p *v1alpha1.Peer) { p.Spec.Removed = true }, false},
		"that is being deleted":    {func(p *v1alpha1.Peer) { p.DeletionTimestamp = &metav1.Time{} }, false},
		"that names no other UID ": {func(p *v1alpha1.Peer) { p.Spec.ClusterUID = "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			own := peer(func(p *v1alpha1.Peer) { p.Name = "a" }, c.change)
			w.use(own)
			claim := w.set.OwnIDClaim()
			claims := claim != ""
			if claims != c.claims || claims && claim != "uid-b" || (w.times("cluster a") == 1) != claims {
				t.Errorf("claims %v: %v", claims, claim)
			}
			if len(w.set.Members()) > 0 || len(w.set.Removed()) > 0 {
				t.Errorf("members %v, removed %v", w.set.Members(), w.set.Removed())
			}
			w.status("a")
			if diff := cmp.Diff([]string{"Warning OwnClusterID"}, w.kinds()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyAcceptedNamespacesAreImported(t *testing.T) {
	w := newWorld(t)
	w.server.put("exportrecords", record(shared, 1))
	w.server.put("endpointslices", sliceOf(1, "10.1.0.1"))
	w.join()
	key, other := keyOf(1), types.NamespacedName{Namespace: "kitchen", Name: "web"}
	state := func() string {
		out := []string{}
		if w.exports(key) {
			out = append(out, "export")
		}
		if len(w.published(key).Slices) > 0 {
			out = append(out, "slices")
		}
		if r := w.published(key).Refusal; r != nil {
			out = append(out, "refused "+r.Field+string(r.ExportUID))
		}
		if w.published(key).NotAccepted {
			out = append(out, "not accepted")
		}
		if w.published(other).NotAccepted {
			out = append(out, "other not accepted")
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct {
		list     []string
		want     string
		accepted string
		counts   v1alpha1.PeerExports
	}{
		{[]string{"*"}, "export, slices", "True Accepted", v1alpha1.PeerExports{Read: 1}},
		{[]string{"sho*"}, "export, slices, other not accepted", "True Accepted", v1alpha1.PeerExports{Read: 1}},
		{[]string{"kitchen"}, "refused uid, not accepted", "True Accepted", v1alpha1.PeerExports{Refused: 1}},
		{[]string{}, "refused uid, not accepted, other not accepted", "True Accepted", v1alpha1.PeerExports{Refused: 1}},
		{[]string{"shop", "kube-system"}, "export, slices, other not accepted", "False NamespaceReserved", v1alpha1.PeerExports{Read: 1}},
		{[]string{"shop", "comity-system"}, "export, slices, other not accepted", "False NamespaceReserved", v1alpha1.PeerExports{Read: 1}},
		{[]string{"kitchen", "shop"}, "export, slices", "True Accepted", v1alpha1.PeerExports{Read: 1}},
	} {
		told, before, connection := w.times("cluster b"), state(), w.active()
		w.use(peer(func(p *v1alpha1.Peer) { p.Spec.AcceptedNamespaces = &c.list }))
		if got := state(); got != c.want {
			t.Errorf("%q: %s; want %s", c.list, got, c.want)
		}
		if before != c.want && w.times("cluster b") == told || w.active() != connection {
			t.Errorf("%q: told %d times", c.list, w.times("cluster b")-told)
		}
		if got := w.condition(v1alpha1.PeerAccepted); got != c.accepted {
			t.Errorf("%q: Accepted: %s", c.list, got)
		}
		if diff := cmp.Diff(c.counts, w.status("b").Exports); diff != "" {
			t.Errorf("%q: exports (-want +got):\n%s", c.list, diff)
		}
	}
	w.use(peer())
	if got := state(); got != "export, slices" {
		t.Errorf("without a list: %s", got)
	}
}

// FAULT 32: what is accepted from a peer is narrowed while the peer cannot be read.
func TestFault32WhatIsAcceptedFromAPeerThatIsNotReadIsKnown(t *testing.T) {
	w := exporting(t, 1)
	w.set.opts.LocalCluster = func() model.LocalCluster {
		return model.LocalCluster{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}
	}
	w.server.put("memberrecords", memberRecord("uid-other"))
	w.await("it is not read", func() bool { return !w.member().Synced })
	told := w.times("cluster b")
	w.use(peer(func(p *v1alpha1.Peer) {
		p.Spec.AcceptedCIDRs, p.Spec.AcceptedNamespaces = []string{"10.1.2.0/24"}, &[]string{"kitchen"}
	}))
	want := exchange.Filter{Accepted: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}, LocalCluster: model.LocalCluster{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}}
	if diff := cmp.Diff(&want, w.published(keyOf(0)).Accepted, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !w.published(keyOf(0)).NotAccepted || w.times("cluster b") != told+1 {
		t.Errorf("told %d times", w.times("cluster b")-told)
	}
}

func TestLabelsAndConfirmationsAreThoseOfThePeer(t *testing.T) {
	w := exporting(t, 1)
	connection, at := w.active(), metav1.NewTime(begun)
	p := peer()
	for _, change := range []func(*v1alpha1.Peer){
		func(p *v1alpha1.Peer) { p.Labels = map[string]string{"tier": "front"} },
		func(p *v1alpha1.Peer) { p.Spec.ConfirmMissingBefore = &at },
	} {
		told := w.times("cluster b")
		change(&p)
		w.use(p)
		w.use(p)
		if w.times("cluster b") != told+1 {
			t.Errorf("told %d times", w.times("cluster b")-told)
		}
		m := w.member()
		if diff := cmp.Diff(p.Labels, m.Labels); diff != "" || m.ConfirmMissingBefore.Equal(begun) != (p.Spec.ConfirmMissingBefore != nil) {
			t.Errorf("%+v", m)
		}
	}
	if w.active() != connection {
		t.Error("that made another connection")
	}
}

func TestSecretsOfOthersAreNotUsed(t *testing.T) {
	w := newWorld(t)
	w.useBoth([]v1alpha1.Peer{peer()}, corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-system", Name: "tls"}})
	if got := w.condition(v1alpha1.PeerAccepted); got != "False SecretMissing" || len(w.set.Members()) != 1 {
		t.Errorf("Accepted: %s, members %v", got, w.set.Members())
	}
}
