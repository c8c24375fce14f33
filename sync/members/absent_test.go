// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// isMember reports whether b is a member.
func (w *world) isMember() bool {
	return slices.ContainsFunc(w.set.Members(), func(m model.Member) bool { return m.ID == "b" })
}

// observed is what the informer shows of a Secret.
func (w *world) observed(s corev1.Secret) { w.set.observe(w.t.Context(), &s) }

func leaving(s corev1.Secret) corev1.Secret {
	s.Annotations[model.AnnotationLeaving] = "true"
	return s
}

// standing is an Options.Imported of one export of each of these clusters.
func standing(ids ...model.ClusterID) func(context.Context) (map[model.ClusterID][]types.NamespacedName, error) {
	return func(context.Context) (map[model.ClusterID][]types.NamespacedName, error) {
		of := map[model.ClusterID][]types.NamespacedName{}
		for _, id := range ids {
			of[id] = []types.NamespacedName{keyOf(0)}
		}
		return of, nil
	}
}

func TestAMarkedSecretThatIsDeletedRemovesItsMemberAtOnce(t *testing.T) {
	w := exporting(t, 2)
	w.observed(leaving(w.server.secret()))
	w.secrets(leaving(w.server.secret()))
	if !w.member().Synced {
		t.Fatal("the mark alone has an effect")
	}
	w.secrets() // its deletion may be reconciled before the event about it
	if w.isMember() || w.times("cluster b") == 0 {
		t.Error("it is still a member")
	}
	w.observed(leaving(w.server.secret()))
	w.secrets()
	if got := w.kinds(); slices.ContainsFunc(got, func(k string) bool { return strings.Contains(k, "PeerSecret") }) {
		t.Errorf("events %q", got)
	}
	// The mark is of that Secret, and not of a later one.
	w.join()
	w.secrets()
	if !w.isMember() {
		t.Error("a Secret that was deleted without a mark removed it")
	}
}

func TestAMarkThatIsTakenBackRemovesNothing(t *testing.T) {
	w := exporting(t, 1)
	w.observed(leaving(w.server.secret()))
	w.observed(w.server.secret())
	w.secrets()
	if !w.isMember() {
		t.Error("removed")
	}
}

func TestASecretDeletedWithoutAMarkKeepsItsMemberForAWhile(t *testing.T) {
	w := exporting(t, 2)
	w.observed(w.server.secret())
	w.secrets()
	m := w.member()
	if m.Synced || m.Liveness.State != model.Connected || m.Labels[model.LabelClusterID] != "b" {
		t.Errorf("got %+v", m)
	}
	w.says("Warning PeerSecretMissing Secret comity-system/peer-b, through which cluster b is read, is missing", "kept until 2026-01-01T00:10:00Z", "remedy: create the Secret again", "kubectl comity leave")
	if s := w.set.States()[0]; s.Reason != ReasonPeerSecretMissing || s.Synced {
		t.Errorf("got %+v", s)
	}
	w.pass(599)
	if !w.isMember() || w.state() != model.Connected {
		t.Errorf("after 599 s: %v", w.set.Members())
	}
	told := w.times("cluster b")
	w.pass(1)
	if w.isMember() || w.times("cluster b") != told+1 {
		t.Error("it is kept for longer")
	}
	w.says("Normal PeerRemoved Secret comity-system/peer-b was missing for 10m0s")
}

func TestASecretThatIsCreatedAgainContinues(t *testing.T) {
	w := exporting(t, 2)
	w.secrets()
	w.pass(300)
	again := w.server.secret()
	again.UID = "another"
	w.secrets(again)
	w.await("it is read again", func() bool { return w.member().Synced })
	w.says("Normal PeerSecretFound a Secret for cluster b exists again")
	w.pass(700)
	if !w.isMember() {
		t.Error("the time went on")
	}
	w.secrets()
	w.pass(599)
	if !w.isMember() {
		t.Error("the time did not begin again")
	}
}

// FAULT 22: a peer whose Secret was deleted while no process ran.
func TestWhatIsImportedFromAClusterWithoutASecretIsKeptForAWhileAfterAStart(t *testing.T) {
	w := newWorld(t)
	w.set.opts.Imported = standing("a", "b", "not an id")
	w.secrets()
	if got := w.set.Members(); len(got) != 1 || got[0].ID != "b" || got[0].Synced {
		t.Fatalf("got %+v", got)
	}
	w.pass(600)
	if w.isMember() {
		t.Error("it is kept for ever")
	}
	// A Secret that was created and deleted with the mark in between shows in its events only.
	w = newWorld(t)
	w.set.opts.Imported = standing("b")
	w.secrets()
	w.observed(leaving(w.server.secret()))
	w.secrets()
	if w.isMember() {
		t.Error("the mark has no effect")
	}
}

func TestNothingIsRemovedBeforeWhatIsImportedIsKnown(t *testing.T) {
	w := newWorld(t)
	w.set.opts.Imported = func(context.Context) (map[model.ClusterID][]types.NamespacedName, error) {
		return nil, errors.New("no answer")
	}
	if err := w.set.use(t.Context(), nil, nil); err == nil || w.set.isListed() {
		t.Errorf("listed: %v, %v", w.set.isListed(), err)
	}
}

// FAULT 27: a label of a peer Secret is misspelled.
func TestAMemberWhoseSecretIsRefusedIsKeptWithoutALimit(t *testing.T) {
	for reason, slip := range map[string]func(*corev1.Secret){
		ReasonWrongClusterSet:  func(s *corev1.Secret) { s.Labels[model.LabelClusterSet] = "prd" },
		ReasonInvalidClusterID: func(s *corev1.Secret) { delete(s.Labels, model.LabelClusterID) },
		ReasonOwnClusterID:     func(s *corev1.Secret) { s.Labels[model.LabelClusterID] = "a" },
		ReasonClusterIDChanged: func(s *corev1.Secret) { s.Labels[model.LabelClusterID] = "bb" },
	} {
		t.Run(reason, func(t *testing.T) {
			w := exporting(t, 2)
			refused := w.server.secret()
			slip(&refused)
			w.secrets(refused)
			if m := w.member(); m.Synced || len(w.set.Members()) != 1 || m.Labels[model.LabelClusterSet] != "prod" {
				t.Fatalf("got %+v", w.set.Members())
			}
			w.says("Warning "+reason+" Secret comity-system/peer-b, label ", "what was imported from that peer is kept meanwhile")
			if s := w.set.States()[0]; s.Reason != reason {
				t.Errorf("got %+v", s)
			}
			w.pass(700)
			if !w.isMember() {
				t.Fatal("removed")
			}
			w.secrets(w.server.secret())
			w.await("it is read again", func() bool { return w.member().Synced })
			w.says("Normal Connected everything that cluster b shares was read")
		})
	}
}

func TestWhileItIsNotKnownWhoseARefusedSecretIsNobodyIsRemoved(t *testing.T) {
	w := newWorld(t)
	w.set.opts.Imported = standing("b")
	nameless := w.server.secret()
	nameless.Name = "any"
	delete(nameless.Labels, model.LabelClusterID)
	w.secrets(nameless)
	w.says("Warning InvalidClusterID Secret comity-system/any, label cluster.clusterset.k8s.io: is missing")
	w.pass(700)
	if !w.isMember() {
		t.Fatal("removed")
	}
	w.secrets()
	w.pass(599)
	if !w.isMember() {
		t.Error("the time did not begin when the Secret was deleted")
	}
	w.pass(1)
	if w.isMember() {
		t.Error("kept for ever")
	}
}

// creds is a Secret that leads to the server of b and does not have the name that join
// gives. It has the label id.
func (w *world) creds(id string) corev1.Secret {
	s := w.server.secret()
	s.Name, s.UID = "cluster-b-creds", "secret-creds"
	s.Labels[model.LabelClusterID] = id
	return s
}

// FAULT 27: a label of a peer Secret is misspelled, and is that of no other cluster.
func TestAMissingMemberIsKeptWhileASecretThatReadsNothingMayBeItsOwn(t *testing.T) {
	w := newWorld(t)
	w.set.opts.Imported = standing("b")
	w.secrets(w.creds("bb"))
	w.pass(700)
	if !w.isMember() {
		t.Fatal("removed")
	}
	state := w.set.States()[0]
	for _, part := range []string{"Secret comity-system/peer-b, through which cluster b is read, is missing", `nothing was read through Secret comity-system/cluster-b-creds, whose label cluster.clusterset.k8s.io is "bb"`,
		"for 10m0s after that", "remedy: correct the label of that Secret"} {
		if state.ID != "b" || !strings.Contains(state.Message, part) {
			t.Errorf("state %+v; want %q", state, part)
		}
	}
	if got := w.kinds(); strings.Count(strings.Join(got, " "), ReasonPeerSecretMissing) != 1 {
		t.Errorf("events %q; want one", got)
	}
	w.secrets(w.creds("b"))
	w.await("b is read", func() bool { return w.member().Synced })
}

func TestTheTimeOfAMissingMemberBeginsOnceEverySecretIsKnownToBeAnothers(t *testing.T) {
	w := newWorld(t)
	w.set.opts.Imported = standing("c")
	w.server.change(func() { w.server.refuse = func(string) (int, string) { return 403, "Forbidden" } })
	w.secrets(w.server.secret())
	is := func() bool {
		return slices.ContainsFunc(w.set.Members(), func(m model.Member) bool { return m.ID == "c" })
	}
	w.pass(700)
	if !is() {
		t.Fatal("removed while the Secret of b may be that of c")
	}
	w.server.change(func() { w.server.refuse = nil })
	again := w.server.secret()
	again.Data[kubeconfig.SecretKey] = append([]byte("# rotated\n"), again.Data[kubeconfig.SecretKey]...)
	w.secrets(again)
	w.await("b is synced", func() bool { return w.member().Synced })
	w.pass(600)
	if !is() {
		t.Error("the time did not begin when b was read")
	}
	w.pass(1)
	if is() {
		t.Error("kept for ever")
	}
}

func TestAMemberThatIsImportedFromKeepsNoMissingOne(t *testing.T) {
	w := newWorld(t)
	w.set.opts.Imported = standing("b", "bb")
	w.secrets(w.creds("bb"))
	w.pass(600)
	if w.isMember() {
		t.Error("b is kept although it is known whose the other Secret is")
	}
}

// FAULT 27: this cluster is started with the id of a peer.
func TestASecretOfAnotherClusterWithOurIDIsNamed(t *testing.T) {
	w := newWorld(t)
	w.set.opts.ClusterUID = "uid-a"
	ours := func(name string, uid types.UID) corev1.Secret {
		s := w.creds("a")
		s.Name, s.UID, s.Annotations[model.AnnotationClusterUID] = name, types.UID(name), string(uid)
		return s
	}
	is := func(want model.OwnIDClaim) {
		t.Helper()
		if got, claimed := w.set.OwnIDClaim(); got != want || claimed != (want.Secret.Name != "") {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	secret := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: "comity-system", Name: name}
	}
	is(model.OwnIDClaim{})
	w.secrets(ours("own", "uid-a"))
	is(model.OwnIDClaim{})
	w.secrets(ours("own", "uid-a"), ours("nobody", ""))
	is(model.OwnIDClaim{Secret: secret("nobody")})
	w.secrets(ours("own", "uid-a"), ours("nobody", ""), ours("theirs", "uid-b"))
	is(model.OwnIDClaim{Secret: secret("theirs"), ClusterUID: "uid-b"})
	w.secrets(ours("own", "uid-a"), ours("theirs", "uid-b"))
	w.secrets(ours("own", "uid-a"))
	is(model.OwnIDClaim{})
	if told := w.times("cluster a"); told != 3 {
		t.Errorf("told %d times, want at each of 3 changes", told)
	}
	w.says("Warning OwnClusterID Secret comity-system/theirs", "if this cluster was started with the id of that peer, correct that (--cluster-id, or ClusterProperty cluster.clusterset.k8s.io)")
}

// A Secret of a member whose label is changed to our id says nothing about our id.
func TestAMembersSecretWithOurIDLeavesTheIDOurs(t *testing.T) {
	w := exporting(t, 1)
	s := w.server.secret()
	s.Labels[model.LabelClusterID] = "a"
	w.secrets(s)
	if got, claimed := w.set.OwnIDClaim(); claimed {
		t.Errorf("got %+v", got)
	}
}
