// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// SetupWithManager makes mgr watch the peer Secrets on every replica, as the
// webhook needs the peers too. The manager's cache of Secrets should be
// restricted to Options.Namespace.
func (s *Set) SetupWithManager(mgr ctrl.Manager) error {
	everyReplica := false
	err := ctrl.NewControllerManagedBy(mgr).
		Named("peer").
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(s.observe))).
		// Without any Secret there is no event, and Listed would never close.
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(s.request())
			return nil
		})).
		WithOptions(controller.Options{NeedLeaderElection: &everyReplica, MaxConcurrentReconciles: 1}).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, s.reconcile(ctx, mgr.GetClient())
		}))
	if err != nil {
		return fmt.Errorf("set up the peer controller: %w", err)
	}
	for _, runnable := range []manager.Runnable{&tokenRefresher{set: s, client: mgr.GetClient()}, eventWriter{s}, livenessMonitor{s}} {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("set up peers: %w", err)
		}
	}
	return mgr.Add(connectionCloser{s})
}

func (s *Set) reconcile(ctx context.Context, reader client.Reader) error {
	s.mu.Lock()
	marks := maps.Clone(s.marks) // those of Secrets that are gone from the list below
	s.mu.Unlock()
	// Without a selector: a label may be missing because of a slip.
	var secrets corev1.SecretList
	if err := reader.List(ctx, &secrets, client.InNamespace(s.opts.Namespace)); err != nil {
		return fmt.Errorf("list peer Secrets: %w", err)
	}
	return s.use(ctx, secrets.Items, marks)
}

// use makes the members those of these Secrets.
func (s *Set) use(ctx context.Context, secrets []corev1.Secret, marks map[types.UID]mark) error {
	first, imported := !s.isListed(), map[model.ClusterID][]types.NamespacedName{}
	var err error
	if first {
		if imported, err = s.imported(ctx); err != nil {
			return err
		}
	}
	assigned := assign(secrets, s.opts.Self, s.opts.ClusterSet, s.formerly(imported))
	if !first && s.hasNew(assigned.claims) {
		if imported, err = s.imported(ctx); err != nil {
			return err
		}
	}
	present := map[types.UID]bool{}
	for i := range secrets {
		present[secrets[i].UID] = true
	}
	s.mu.Lock()
	s.report(present, assigned.refusals)
	after := s.apply(assigned, imported, marks, first)
	if s.setOwnIDClaim(assigned.ownID) {
		after.members = append(after.members, s.opts.Self)
	}
	maps.DeleteFunc(s.marks, func(uid types.UID, _ mark) bool {
		_, followed := marks[uid]
		return followed && !present[uid]
	})
	s.updateView()
	s.mu.Unlock()
	after.do(s)
	if first {
		close(s.listed)
	}
	return nil
}

// setOwnIDClaim keeps the first of these Secrets that is not this cluster's own, and
// prefers one of which the cluster is recorded. It reports whether that is a change.
func (s *Set) setOwnIDClaim(secrets []*corev1.Secret) bool {
	var claim *model.OwnIDClaim
	for _, secret := range secrets {
		uid := recordedUID(secret)
		isOwn := uid != "" && uid == s.opts.ClusterUID
		if !isOwn && (claim == nil || claim.ClusterUID == "" && uid != "") {
			claim = &model.OwnIDClaim{Secret: types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}, ClusterUID: uid}
		}
	}
	before := s.ownID.Swap(claim)
	return (before == nil) != (claim == nil) || claim != nil && *before != *claim
}

func (s *Set) isListed() bool {
	select {
	case <-s.listed:
		return true
	default:
		return false
	}
}

// imported lists what was imported from each cluster before.
func (s *Set) imported(ctx context.Context) (map[model.ClusterID][]types.NamespacedName, error) {
	imported, err := s.opts.Imported(ctx)
	if err != nil {
		return nil, fmt.Errorf("list what was imported before: %w", err)
	}
	return imported, nil
}

// hasNew reports whether one of the claims is that of a cluster that is no member yet.
func (s *Set) hasNew(claims []claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(claims, func(c claim) bool { return s.members[c.id] == nil })
}

// formerly is what is known of the Secrets of the members, and of the clusters of
// which something is imported.
func (s *Set) formerly(imported map[model.ClusterID][]types.NamespacedName) formerly {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := formerly{inUse: map[types.UID]model.ClusterID{}, named: map[string]model.ClusterID{}}
	for id := range imported {
		if id != s.opts.Self {
			out.named[model.PeerName(id)] = id
		}
	}
	for id, m := range s.members {
		out.named[model.PeerName(id)] = id
		if m.secret.UID != "" && m.known {
			out.inUse[m.secret.UID] = id
		}
	}
	return out
}

// followUp is what is done once mu is released, because it may take mu again.
type followUp struct {
	members []model.ClusterID
	keys    []types.NamespacedName
	pins    []pin
}

// pin restricts a connection to one cluster.
type pin struct {
	connection *remote.Connection
	uid        types.UID
}

func (f followUp) do(s *Set) {
	for _, p := range f.pins {
		p.connection.Pin(p.uid)
	}
	for _, id := range f.members {
		s.changedMembers.Publish(id)
	}
	for _, key := range f.keys {
		s.keys.Publish(key)
	}
}

// apply adds, updates and removes members as the claims say. What was imported
// from a new member is compared with its exports once they are read.
func (s *Set) apply(assigned assignment, imported map[model.ClusterID][]types.NamespacedName, marks map[types.UID]mark, first bool) (after followUp) {
	claimed := map[model.ClusterID]bool{}
	for _, c := range assigned.claims {
		claimed[c.id] = true
		m, known := s.members[c.id]
		if !known {
			m = s.newMember(c)
			m.guard.Present(imported[c.id]...)
			m.known = len(imported[c.id]) > 0
			s.members[c.id] = m
		}
		returned := !m.absent.IsZero()
		s.found(m)
		s.readAnnotations(m, c, &after)
		if !known || returned || m.claim.unusable() != c.unusable() {
			after.members = append(after.members, c.id)
		}
		if !known || returned || !m.claim.equal(c) {
			m.claim = c
			s.connectTo(m)
		}
	}
	if first {
		s.addAbsent(claimed, imported)
	}
	s.unidentified = assigned.unidentified
	s.removeAbsent(claimed, marks, &after)
	slices.Sort(after.members)
	after.members = slices.Compact(after.members)
	return after
}

// connectTo uses the kubeconfig that the Secret holds now. The present connection
// uses a new token. Any other change makes a new connection, and the present one
// stays until the new one is synced. A kubeconfig that is refused replaces nothing.
// A Secret that is refused as a whole reaches nothing any more.
func (s *Set) connectTo(m *member) {
	if m.claim.unusable() {
		s.disconnect(m, m.claim.refused)
		return
	}
	if m.refused = m.claim.refused; m.claim.config == nil {
		return
	}
	if s.renew(m) {
		return
	}
	if err := s.dial(m, m.claim.config, connection{rest: m.claim.rest}); err != nil {
		m.refused = remote.Failure{Reason: ReasonInvalidKubeconfig, Message: err.Error()}
		s.event(m.secret, aboutReading, corev1.EventTypeWarning, ReasonInvalidKubeconfig, err.Error())
		return
	}
	s.opts.Log.Info("connecting to peer", "cluster", m.id)
	m.rejected = 0
}

// renew has the connection of m use the token of its Secret, and reports false if
// a new connection is needed.
func (s *Set) renew(m *member) bool {
	switch {
	case m.active.renew(m.claim):
		if m.next != nil && !m.next.again {
			s.retire(m.next)
			m.next = nil
			problem, verified := m.active.State()
			s.reportProblem(m, problem, verified)
		}
	case !m.next.renew(m.claim):
		return false
	}
	s.opts.Log.Info("the Secret of a peer holds another token", "cluster", m.id)
	return true
}

// dial makes a connection that replaces the one in use once it is synced; as
// says what it is made for.
func (s *Set) dial(m *member, config *rest.Config, as connection) error {
	next, err := s.connect(s.ctx, remote.Options{
		ID: m.id, Self: s.opts.Self, ClusterSet: s.opts.ClusterSet, ClusterUID: m.uid, Config: config, Log: s.opts.Log, Limits: s.opts.Limits,
		Hooks: remote.Hooks{
			Listed: s.exportsListed, Export: s.exportChanged, Slices: s.slicesChanged, Namespace: s.namespaces.Publish,
			Report: s.reports.Publish, LeaseRead: s.leaseRead, State: s.stateChanged, Rejected: s.rejectedRecord,
			Restored: s.restored,
		},
	})
	if err != nil {
		return err
	}
	s.retire(m.next)
	as.Connection, as.dialed = next, s.opts.Clock.Now()
	m.next = &as
	return nil
}

// report writes an event for each refused Secret, once until the reason changes.
// present are the UIDs of all Secrets.
func (s *Set) report(present map[types.UID]bool, refusals []refusal) {
	refused := map[types.UID]bool{}
	s.metrics.refused.Reset()
	for _, r := range refusals {
		refused[r.secret.UID] = true
		s.metrics.refused.WithLabelValues(r.reason).Inc()
		if s.reported[r.secret.UID] == r.message {
			continue
		}
		s.reported[r.secret.UID] = r.message
		s.opts.Log.Info("peer Secret refused", "namespace", r.secret.Namespace, "name", r.secret.Name, "reason", r.reason, "message", r.message)
		s.event(r.secret, aboutSecret, corev1.EventTypeWarning, r.reason, r.message)
	}
	for uid := range s.reported {
		if !present[uid] || !refused[uid] {
			delete(s.reported, uid)
			delete(s.pending, topic{uid, aboutSecret})
		}
	}
	for of := range s.pending {
		if of.secret != "" && !present[of.secret] {
			delete(s.pending, of)
		}
	}
}

// eventWriter starts when this replica becomes the leader.
type eventWriter struct{ set *Set }

// NeedLeaderElection is true: the leader writes the events.
func (eventWriter) NeedLeaderElection() bool { return true }

// Start returns at once: the leader leads until its process ends.
func (w eventWriter) Start(context.Context) error {
	w.set.becomeLeader()
	return nil
}

// connectionCloser ends all connections with the process.
type connectionCloser struct{ set *Set }

// NeedLeaderElection is false: every replica has connections.
func (connectionCloser) NeedLeaderElection() bool { return false }

// Start waits for the end of ctx, then for the end of everything that Set started.
func (c connectionCloser) Start(ctx context.Context) error {
	<-ctx.Done()
	c.set.cancel()
	c.set.mu.Lock()
	var waiting []*connection
	for _, m := range c.set.members {
		waiting = append(waiting, m.connections()...)
	}
	c.set.mu.Unlock()
	for _, l := range waiting {
		l.Stop()
		l.Wait()
	}
	c.set.ending.Wait()
	return nil
}
