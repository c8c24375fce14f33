// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"
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
	// All Secrets are reconciled together, because which of two duplicates is used
	// depends on both. So there is one request, and it needs no name.
	all := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.opts.Namespace}}
	toAll := handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *corev1.Secret) []reconcile.Request {
		return []reconcile.Request{all}
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("peer").
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Secret{}, toAll)).
		// Without any Secret there is no event, and Listed would never close.
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(all)
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
	var secrets corev1.SecretList
	err := reader.List(ctx, &secrets, client.InNamespace(s.opts.Namespace), client.HasLabels{model.LabelClusterID})
	if err != nil {
		return fmt.Errorf("list peer Secrets: %w", err)
	}
	claims, refusals := assign(secrets.Items, s.opts.Self, s.opts.ClusterSet)
	imported, err := s.importedOf(ctx, claims)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.report(secrets.Items, refusals)
	after := s.apply(claims, imported)
	s.updateView()
	s.mu.Unlock()
	after.do(s)
	select {
	case <-s.listed:
	default:
		close(s.listed)
	}
	return nil
}

// importedOf lists what was imported from the clusters, if one of them is no member yet.
func (s *Set) importedOf(ctx context.Context, claims []claim) (map[model.ClusterID][]types.NamespacedName, error) {
	s.mu.Lock()
	isNew := slices.ContainsFunc(claims, func(c claim) bool { return s.members[c.id] == nil })
	s.mu.Unlock()
	if !isNew {
		return nil, nil
	}
	imported, err := s.opts.Imported(ctx)
	if err != nil {
		return nil, fmt.Errorf("list what was imported before: %w", err)
	}
	return imported, nil
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
func (s *Set) apply(claims []claim, imported map[model.ClusterID][]types.NamespacedName) (after followUp) {
	claimed := map[model.ClusterID]bool{}
	for _, c := range claims {
		claimed[c.id] = true
		m, known := s.members[c.id]
		if !known {
			m = s.newMember(c)
			m.guard.Present(imported[c.id]...)
			s.members[c.id] = m
			after.members = append(after.members, c.id)
		}
		s.readAnnotations(m, c.secret, &after)
		if !known || m.claim.digest != c.digest {
			m.claim = c
			s.connectTo(m)
		}
	}
	for id, m := range s.members {
		if !claimed[id] {
			s.opts.Log.Info("peer removed", "cluster", id)
			s.retire(m.active)
			s.retire(m.next)
			s.metrics.forget(id)
			delete(s.members, id)
			after.members = append(after.members, id)
		}
	}
	slices.Sort(after.members)
	return after
}

// connectTo uses the kubeconfig that the Secret holds now. The present connection
// uses a new token. Any other change makes a new connection, and the present one
// stays until the new one is synced. A kubeconfig that is refused replaces nothing.
func (s *Set) connectTo(m *member) {
	m.refused = ""
	if m.claim.config == nil {
		m.refused = s.reported[m.secret.UID]
		return
	}
	if s.renew(m) {
		return
	}
	if err := s.dial(m, m.claim.config, connection{rest: m.claim.rest}); err != nil {
		m.refused = err.Error()
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
		ID: m.id, Self: s.opts.Self, ClusterSet: s.opts.ClusterSet, ClusterUID: m.uid, Config: config, Log: s.opts.Log,
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
func (s *Set) report(secrets []corev1.Secret, refusals []refusal) {
	present := map[types.UID]bool{}
	for i := range secrets {
		present[secrets[i].UID] = true
	}
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
		if !present[of.secret] {
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
