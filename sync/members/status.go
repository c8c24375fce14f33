// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// Reasons of conditions of a Peer, and of the events about them, beside those for which a
// Peer is refused, those of package remote for which it cannot be read, Missing and
// TakeoverHeld. A condition that
// is True has its type as its reason.
const (
	// ReasonConnecting: nothing is known of the cluster yet.
	ReasonConnecting = "Connecting"
	// ReasonRemoving: imports list the cluster that was removed.
	ReasonRemoving = "Removing"
	// ReasonStoreRestored is that of an event: the cluster was restored from a backup.
	ReasonStoreRestored = "StoreRestored"
)

// observed is what is known of a peer, from which its status follows.
type observed struct {
	// refused is what of the Peer, its Secret or its cluster is not used.
	refused remote.Failure
	// connects: there is a connection, or there will be. Read: all was read.
	connects, read bool
	problem        remote.Failure
	liveness       model.Liveness
	heartbeat      time.Time // the last one; zero if none was seen since this process started
	limited        remote.Failure
	drains         []model.Drain
	invalid        remote.Failure // of records
	version        string
	tokenExpires   *metav1.Time
	// exported and refusedExports are counts of exports.
	exported, refusedExports int
	imports                  model.ImportCounts
}

// observe is what is known of the peer of that name; false if it is no member.
func (w *statusWriter) observe(id model.ClusterID) (observed, bool) {
	w.set.mu.Lock()
	m := w.set.members[id]
	if m == nil {
		w.set.mu.Unlock()
		return observed{}, false
	}
	o := observed{
		refused: cmp.Or(m.claim.refused, m.claim.ignored), connects: m.inUse() != nil, read: m.synced(), limited: m.limited(),
		drains: m.drains(), liveness: m.heartbeat.liveness, heartbeat: m.heartbeat.lastRenewal, tokenExpires: m.claim.tokenExpires(),
	}
	if o.connects {
		if m.active != nil && m.next != nil { // of a kubeconfig that is not in use yet
			o.refused = cmp.Or(o.refused, m.next.State().Problem)
		}
		state := m.inUse().State()
		o.problem, o.version = state.Problem, state.Version
		if o.problem.Reason == remote.ReasonClusterIDReused {
			o.refused = cmp.Or(o.refused, o.problem)
		}
	}
	from, accepted := m.active, m.claim.accepted
	w.set.mu.Unlock()
	if o.read { // counting takes a while with many exports
		o.invalid = from.Invalid()
		o.exported, o.refusedExports = from.Count(accepted.namespaces.Contains)
		o.imports = w.imports.Counts(id)
	}
	return o, true
}

// status is the status of a Peer that had stored. What is not known since this process
// started stays as it was stored, so that a restart changes nothing.
func (o observed) status(peer *exchangev1alpha1.Peer, now time.Time) exchangev1alpha1.PeerStatus {
	out := *peer.Status.DeepCopy()
	b := builder{peer: peer, now: metav1.NewTime(now), conditions: &out.Conditions}
	b.set(exchangev1alpha1.PeerAccepted, o.refused, "the Peer, its Secret and the cluster that answers are used as they are")
	o.setConnected(b)
	if !o.heartbeat.IsZero() && (out.LastHeartbeat == nil || isNew(&peer.Status, meta.FindStatusCondition(out.Conditions, exchangev1alpha1.PeerConnected))) {
		out.LastHeartbeat = ptr.To(metav1.NewTime(o.heartbeat).Rfc3339Copy())
	}
	was := meta.FindStatusCondition(out.Conditions, exchangev1alpha1.PeerDrained)
	if o.setDrained(b); was != nil && len(o.drains) == 0 && (o.read || was.ObservedGeneration != peer.Generation) { // else it may drain itself
		meta.RemoveStatusCondition(&out.Conditions, exchangev1alpha1.PeerDrained)
	}
	out.TokenExpires = o.tokenExpires
	out.Version = cmp.Or(o.version, out.Version)
	meta.RemoveStatusCondition(&out.Conditions, exchangev1alpha1.PeerRemoved)
	if o.read || o.limited.Reason != "" {
		b.set(exchangev1alpha1.PeerWithinLimits, o.limited, "the cluster publishes no more, and no more often, than is read of one member")
	}
	if !o.read {
		return out
	}
	b.set(exchangev1alpha1.PeerRecordsValid, o.invalid, "everything that the cluster publishes can be used")
	b.set(exchangev1alpha1.PeerComplete, incomplete(peer.Name, o.imports), "no export of the cluster is missing or waits")
	out.Exports = exchangev1alpha1.PeerExports{Read: int32(o.exported), Refused: int32(o.refusedExports), Missing: int32(o.imports.Missing), Waiting: int32(o.imports.Waiting)}
	return out
}

// setConnected sets condition Connected.
func (o observed) setConnected(b builder) {
	const typ = exchangev1alpha1.PeerConnected
	switch {
	case !o.connects && o.refused.Reason != "":
		b.set(typ, o.refused, "")
	case o.liveness.State == model.Lost:
		since := "since this process started"
		if !o.liveness.Confirmed.IsZero() {
			since = "since " + o.liveness.Confirmed.Format(time.RFC3339)
		}
		why := remote.Failure{Reason: o.liveness.Reason, Message: o.liveness.Message}
		if o.problem.Reason != "" && o.problem.Reason != remote.ReasonUnreachable { // found since then, and names what to do
			why = o.problem
		}
		message := fmt.Sprintf("no heartbeat of cluster %s was seen %s: %s: %s", b.peer.Name, since, why.Reason, why.Message)
		if o.liveness.Silent {
			message = "no probed endpoint answers, and " + message
		}
		b.set(typ, remote.Failure{Reason: string(o.liveness.State), Message: message}, "")
	case o.problem.Reason != "" && (!o.read || o.problem.Reason != model.ReasonLimitExceeded):
		b.set(typ, o.problem, "")
	case o.read:
		b.set(typ, remote.Failure{}, "the heartbeat of the cluster is seen, and all that it shares with this one was read")
	default:
		if stored := meta.FindStatusCondition(*b.conditions, typ); stored == nil || slices.Contains(refusals, stored.Reason) {
			b.put(metav1.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: ReasonConnecting, Message: "cluster " + b.peer.Name + " is being connected to"})
		}
	}
}

// setDrained sets condition Drained of a peer that is.
func (o observed) setDrained(b builder) {
	var texts []string
	for _, d := range o.drains {
		by, end := "an administrator of this cluster", "kubectl comity resume "+b.peer.Name
		if d.Self {
			by, end = "cluster "+b.peer.Name+" itself", end+" --self there, or spec.ignoreDrain of its Peer here"
		}
		text := fmt.Sprintf("%s drained it, so that its endpoints are used only where no other cluster has a ready one", by)
		if d.Force {
			text = by + " drained it by force, so that its endpoints are not ready"
		}
		if d.Over.Duration > 0 {
			text += fmt.Sprintf("; one import after the other from %s to %s", d.Since.UTC().Format(time.RFC3339), d.Since.Add(d.Over.Duration).UTC().Format(time.RFC3339))
		}
		texts = append(texts, text+"; to end that: "+end)
	}
	if len(texts) > 0 {
		b.set(exchangev1alpha1.PeerDrained, remote.Failure{}, strings.Join(texts, "; and "))
	}
}

// incomplete says what is missing or waits, and which commands end that.
func incomplete(cluster string, c model.ImportCounts) remote.Failure {
	var reason string
	var texts []string
	if c.Missing > 0 {
		reason = model.ReasonMissing
		texts = append(texts, fmt.Sprintf("exports of cluster %[1]s that are missing although it did not withdraw them: %[2]d, such as %[3]s; remedy: let it publish them, "+
			"or confirm that they are gone: kubectl comity confirm missing %[1]s", cluster, c.Missing, c.FirstMissing))
	}
	if c.Waiting > 0 {
		reason = cmp.Or(reason, model.ReasonTakeoverHeld)
		texts = append(texts, fmt.Sprintf("exports of cluster %[1]s that would change imports, and wait: %[2]d, such as %[3]s; remedy: kubectl comity confirm takeover --all --from %[1]s",
			cluster, c.Waiting, c.FirstWaiting))
	}
	return remote.Failure{Reason: reason, Message: strings.Join(texts, "; and ")}
}

// onlyConditions is a status with nothing but these conditions, which all say the same.
func onlyConditions(peer *exchangev1alpha1.Peer, problem remote.Failure, otherwise string, now time.Time, types ...string) exchangev1alpha1.PeerStatus {
	out := exchangev1alpha1.PeerStatus{Conditions: peer.Status.DeepCopy().Conditions}
	out.Conditions = slices.DeleteFunc(out.Conditions, func(c metav1.Condition) bool { return !slices.Contains(types, c.Type) })
	b := builder{peer: peer, now: metav1.NewTime(now), conditions: &out.Conditions}
	for _, typ := range types {
		b.set(typ, problem, otherwise)
	}
	return out
}

// builder changes the conditions of a Peer.
type builder struct {
	peer       *exchangev1alpha1.Peer
	now        metav1.Time
	conditions *[]metav1.Condition
}

// set makes a condition False for a problem, or True without one.
func (b builder) set(typ string, problem remote.Failure, otherwise string) {
	c := metav1.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: problem.Reason, Message: problem.Message}
	if problem.Reason == "" {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, typ, otherwise
	}
	b.put(c)
}

func (b builder) put(c metav1.Condition) {
	c.Message, c.ObservedGeneration, c.LastTransitionTime = model.Bound(c.Message, model.MaxEventNote), b.peer.Generation, b.now.Rfc3339Copy()
	meta.SetStatusCondition(b.conditions, c)
}

// isNew reports whether a condition has another status or reason than before.
func isNew(before *exchangev1alpha1.PeerStatus, c *metav1.Condition) bool {
	was := meta.FindStatusCondition(before.Conditions, c.Type)
	return was == nil || was.Status != c.Status || was.Reason != c.Reason
}

// transitions are the conditions that need an event for what changed between two statuses: one
// for each problem that is new, and one if the peer is connected again.
func transitions(before, after *exchangev1alpha1.PeerStatus) (out []metav1.Condition) {
	for _, c := range after.Conditions {
		isProblem := c.Status == metav1.ConditionFalse && c.Type != exchangev1alpha1.PeerRemoved
		isBack := c.Type == exchangev1alpha1.PeerConnected && meta.IsStatusConditionFalse(before.Conditions, c.Type)
		isSaid := slices.ContainsFunc(out, func(other metav1.Condition) bool { return other.Reason == c.Reason })
		if isNew(before, &c) && (isProblem || isBack && c.Status == metav1.ConditionTrue) && !isSaid {
			out = append(out, c)
		}
	}
	return out
}

// Imports is what the controllers know of the imports from each cluster.
type Imports interface {
	Counts(cluster model.ClusterID) model.ImportCounts
	// Listed reports whether the list of any import has the cluster, or that is not known.
	Listed(cluster model.ClusterID) bool
}

// SetupStatusWithManager makes the leader write the status of Peers, and an event for each
// problem that is new.
func (s *Set) SetupStatusWithManager(mgr ctrl.Manager, imports Imports) error {
	w := &statusWriter{set: s, client: mgr.GetClient(), imports: imports}
	return ctrl.NewControllerManagedBy(mgr).Named("peer-status").WatchesRawSource(source.Func(w.subscribe)).Complete(w)
}

// statusWriter writes the status of one Peer at a time. It reads the Peer from the cache:
// use publishes each new version of it to statuses.
type statusWriter struct {
	set     *Set
	client  client.Client
	imports Imports
}

// subscribe is a source of the Peers whose status may have to be written.
func (w *statusWriter) subscribe(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	enqueue := func(name string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}) }
	context.AfterFunc(ctx, w.set.statuses.Subscribe(enqueue))
	w.set.leads.Store(true)
	for _, name := range w.set.view.Load().peers {
		enqueue(name)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (w *statusWriter) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var peer exchangev1alpha1.Peer
	if err := w.client.Get(ctx, request.NamespacedName, &peer); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	wanted, known := w.wanted(&peer)
	if !known || peer.DeletionTimestamp != nil {
		return reconcile.Result{}, nil // use publishes the Peer once it is a member
	}
	if !equality.Semantic.DeepEqual(peer.Status, wanted) {
		written, err := w.write(ctx, &peer, wanted)
		if err != nil || !written {
			return reconcile.Result{}, err
		}
		for _, c := range transitions(&peer.Status, &wanted) {
			w.set.event(&peer, c)
		}
	}
	if meta.IsStatusConditionTrue(wanted.Conditions, exchangev1alpha1.PeerRemoved) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: w.set.opts.StatusInterval}, nil
}

// wanted is the status that a Peer should have; false if that is not known yet.
func (w *statusWriter) wanted(peer *exchangev1alpha1.Peer) (exchangev1alpha1.PeerStatus, bool) {
	id, now := model.ClusterID(peer.Name), w.set.opts.Clock.Now()
	if id == w.set.opts.Self {
		refused := because(ReasonOwnClusterID, "Peer %s, metadata.name: is this cluster's own id; remedy: if that is wrong, correct it (--cluster-id, or ClusterProperty %s); otherwise delete the Peer", id, model.LabelClusterID)
		return onlyConditions(peer, refused, "", now, exchangev1alpha1.PeerAccepted, exchangev1alpha1.PeerConnected), true
	}
	if peer.Spec.Removed {
		var removing remote.Failure
		if w.imports.Listed(id) {
			removing = because(ReasonRemoving, "imports still list cluster %s; they are being changed", id)
		}
		return onlyConditions(peer, removing, "nothing is imported from the cluster any more", now, exchangev1alpha1.PeerRemoved), true
	}
	o, known := w.observe(id)
	if !known {
		return exchangev1alpha1.PeerStatus{}, false
	}
	return o.status(peer, now), true
}

// write applies status to the very version of the Peer that it was computed from, and
// reports whether it was written. A Peer that changed or is gone is published again by its
// watch: a stale cache must not make the same transition twice.
func (w *statusWriter) write(ctx context.Context, peer *exchangev1alpha1.Peer, status exchangev1alpha1.PeerStatus) (bool, error) {
	u := model.StatusOf(peer, exchangev1alpha1.GroupVersion.WithKind("Peer"), &status)
	err := w.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(model.FieldOwner), client.ForceOwnership)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("apply the status of Peer %s: %w", peer.Name, err)
	}
	return true, nil
}

// event writes an event about a condition of a Peer, a warning if that is False; the API allows
// 1,024 bytes of message.
func (s *Set) event(peer *exchangev1alpha1.Peer, c metav1.Condition) {
	kind, log := corev1.EventTypeNormal, s.opts.Log.WithValues("peer", peer.Name, "reason", c.Reason)
	if c.Status == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
		log.Error(errors.New(c.Message), "the status of a peer changed")
	} else {
		log.Info("the status of a peer changed", "message", c.Message)
	}
	s.opts.Recorder.Eventf(peer, nil, kind, c.Reason, "Read", "%s", model.Bound(c.Message, model.MaxEventNote))
}
