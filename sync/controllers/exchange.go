// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// writeAll makes the writes of each list in the exchange, also if one of them fails. The
// error is the first one.
func (b *base) writeAll(ctx context.Context, lists [][]plan.Action) error {
	var first error
	for _, actions := range lists {
		if _, err := b.publishing.Apply(ctx, actions); first == nil {
			first = err
		}
	}
	return first
}

// Exchange is the API server in which this cluster publishes: its own, or a
// hub. All records and slice copies are read, written and watched through it
// and nothing else is; what is imported, and what is exported, stays with the
// manager's client.
//
// Only this cluster's own exchange namespaces are ever asked for
// (model.ExchangeNamespace(self) and model.ScopedExchangeNamespace(self, peer)),
// but some reads name no namespace and find an object in whichever of them by
// an index, so Client may answer for those namespaces alone.
type Exchange struct {
	// Client reads from a cache and writes to the API server. The kinds are
	// ExportRecord, ImportRecord, NamespaceRecord, MemberRecord and EndpointSlice.
	// The cache must keep manager, operation and subresource of managedFields, by
	// which ownership is proven. The manager must not wait for it before it starts: a
	// hub that does not answer must not keep this cluster from importing.
	Client client.Client
	// Indexer indexes fields in that cache, before the manager starts.
	Indexer client.FieldIndexer
	// Watch is a source of the keys that events of one kind in that cache give.
	Watch func(kind client.Object, keys handler.EventHandler) source.Source
	// Problem says why nothing can be published in one of the exchange
	// namespaces now, and what to do about it; "" if it can.
	Problem func(ctx context.Context, namespace string) string
	// Changed notifies that Problem may return something else, or that an exchange
	// namespace was created again. Required, unless the exchange is the manager's API
	// server, whose Namespaces are watched.
	Changed *notify.Notifier
	// Live reads Leases without a cache.
	Live client.Reader
}

// ownExchange is the manager's API server as exchange.
func ownExchange(mgr ctrl.Manager, self model.ClusterID) *Exchange {
	reader := mgr.GetClient()
	problem := func(ctx context.Context, name string) string {
		namespace, err := getNamespace(ctx, reader, name)
		if err != nil {
			return fmt.Sprintf("exchange namespace %s cannot be read: %v", name, err)
		}
		return exchange.NamespaceProblem(self, name, namespace)
	}
	watch := func(kind client.Object, keys handler.EventHandler) source.Source {
		return source.Kind(mgr.GetCache(), kind, keys)
	}
	return &Exchange{
		Client: reader, Indexer: mgr.GetFieldIndexer(), Watch: watch,
		Live: mgr.GetAPIReader(), Problem: problem, Changed: &notify.Notifier{},
	}
}

// member is the namespace and name of the MemberRecord.
func (b *base) member() types.NamespacedName {
	return types.NamespacedName{Namespace: model.ExchangeNamespace(b.Self), Name: string(b.Self)}
}

// duplicate says that another cluster publishes in this cluster's exchange
// namespaces, or may do so, or that this cluster has another one's id; "" if neither is
// so. In a hub two clusters with one id have one place, and what is there was made by
// the same field manager, so nothing but the Lease shows whose it is: the first to create it
// keeps the place. In its own API server nobody else can write there, and a restored cluster may
// have another UID than its records: only what a Peer says of a cluster without a MemberRecord counts.
func (b *base) duplicate(ctx context.Context) string {
	switch holder := b.heldBy(); {
	case b.hub && b.holdsPlace(), !b.hub && b.Peers.OwnIDClaim() == "":
		return ""
	case b.hub && holder != "":
		return b.placeTaken(holder)
	case b.hub:
		return cmp.Or(b.foreignID(), b.notHeldYet())
	}
	record, err := get[exchangev1alpha1.MemberRecord](ctx, b.Exchange.Client, b.member())
	switch {
	case err != nil:
		return err.Error()
	case record != nil:
		return ""
	}
	return b.foreignID()
}

// problem says why this cluster cannot publish in one of its exchange namespaces
// now, another cluster with its id included; "" if it can.
func (b *base) problem(ctx context.Context, namespace string) string {
	return cmp.Or(b.Exchange.Problem(ctx, namespace), b.duplicate(ctx))
}

// isIDDoubtful reports whether this cluster may have been started with the id of
// another one: a Peer has that id, and nothing shows that this cluster published
// under it. What is imported from the other cluster looks like this cluster's own then.
func (b *base) isIDDoubtful(ctx context.Context) bool {
	return b.Peers.OwnIDClaim() != "" && b.duplicate(ctx) != ""
}

// foreignID says that this cluster was started with the id of another one, which a Peer
// proves; "" if none does. It is for a cluster that never published.
func (b *base) foreignID() string {
	other := b.Peers.OwnIDClaim()
	if other == "" {
		return ""
	}
	return fmt.Sprintf("Peer %s names another cluster (its kube-system namespace has the UID %s, this one's %s), and this cluster has never published under that id, "+
		"so nothing is published; correct the id of the agent (--cluster-id, or ClusterProperty %s), or delete that Peer",
		b.Self, other, b.ClusterUID, model.LabelClusterID)
}

// heartbeat renews the Lease that shows the other members that this cluster's
// Comity runs. Readers notice that the Lease changes and never read a time in it,
// so no two clocks are compared.
//
// It remembers the Lease that it wrote and replaces only that one. So a renewal is
// one request, and another writer shows as a conflict.
type heartbeat struct {
	*base
	log logr.Logger

	lease    *coordinationv1.Lease // as last written; nil if not known
	caughtUp bool                  // all was imported and reported once
	isBehind func() bool           // something waits to be
	reported string                // the problem that was logged last; empty if none

	renewals    *prometheus.CounterVec
	duplicateID prometheus.Gauge
}

// leaseBeats is how many intervals the Lease is valid for.
const leaseBeats = 4

func newHeartbeat(b *base) *heartbeat {
	metrics := promauto.With(b.Registry)
	return &heartbeat{
		base: b, log: ctrl.Log.WithName("heartbeat"),
		isBehind: func() bool { return b.importQueue.Unfinished()+b.reportQueue.Unfinished() > 0 },
		renewals: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "comity_heartbeat_renewals_total",
			Help: "Renewals of the Lease that is this member's heartbeat, by result (ok, failed, duplicate).",
		}, []string{"result"}),
		duplicateID: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "comity_duplicate_cluster_id",
			Help: "1 if another cluster holds the Lease of this cluster's id.",
		}),
	}
}

// Start renews the Lease until ctx ends. It retries a failure sooner, so that one
// lost request is not a missed renewal. The manager calls it on the leader only: without a
// leader nothing is published or imported.
func (h *heartbeat) Start(ctx context.Context) error {
	for {
		pause := h.HeartbeatInterval
		if !h.beat(ctx) {
			pause /= leaseBeats
		}
		timer := h.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C(): // not before the first interval is over, in which all is listed
			h.caughtUp = h.caughtUp || !h.isBehind()
		case <-h.beatSoon:
			timer.Stop()
		}
	}
}

// errDuplicate is that of an id that another cluster uses.
var errDuplicate = errors.New("another cluster has the same id")

// beat renews once; false if that should be tried again soon.
func (h *heartbeat) beat(ctx context.Context) bool {
	if problem := h.Exchange.Problem(ctx, h.member().Namespace); problem != "" {
		h.lease = nil
		h.log.V(1).Info("no heartbeat yet", "reason", problem)
		return true // the cluster is not joined yet
	}
	bounded, cancel := context.WithTimeout(ctx, h.HeartbeatInterval)
	defer cancel()
	err := h.renew(bounded)
	if ctx.Err() != nil {
		return true
	}
	result, isDuplicate := "ok", 0.0
	switch {
	case errors.Is(err, errDuplicate):
		result, isDuplicate = "duplicate", 1
	case err != nil:
		result = "failed"
	}
	h.renewals.WithLabelValues(result).Inc()
	h.duplicateID.Set(isDuplicate)
	switch { // each problem is logged once, and its end
	case err == nil && h.reported != "":
		h.log.Info("the heartbeat is renewed again")
		h.reported = ""
	case err != nil && h.reported != result:
		h.log.Error(err, "the heartbeat cannot be renewed", "reason", result)
		h.reported = result
	}
	return result != "failed"
}

// held records who holds the place. In a hub it has everything published, or no longer, if
// that changed. In a mesh, what waits for it is tried again anyway.
func (h *heartbeat) held(by types.UID) {
	if h.claim.Swap(by) != by && h.hub {
		h.restartPass()
	}
}

// renew writes the Lease once, after reading it if it is not known.
func (h *heartbeat) renew(ctx context.Context) error {
	before, err := h.lease, error(nil)
	if before == nil {
		if before, err = get[coordinationv1.Lease](ctx, h.Exchange.Live, h.member()); err != nil {
			return err
		}
	}
	h.lease = nil // unless the write succeeds it is not known how the Lease is
	var now *coordinationv1.Lease
	if before == nil {
		if h.hub && h.Peers.OwnIDClaim() != "" {
			return errors.New(h.foreignID()) // the place is that cluster's, though it does not hold it at the moment
		}
		now = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: h.member().Namespace, Name: h.member().Name,
			Labels:      map[string]string{"app.kubernetes.io/managed-by": model.ManagedBy},
			Annotations: map[string]string{model.AnnotationClusterUID: string(h.ClusterUID)},
		}}
		h.fill(now)
		now.Spec.AcquireTime = now.Spec.RenewTime
		err = h.Exchange.Client.Create(ctx, now, client.FieldOwner(model.FieldOwner))
	} else {
		holder := cmp.Or(types.UID(before.Annotations[model.AnnotationClusterUID]), "unknown")
		if h.held(holder); holder != h.ClusterUID {
			return fmt.Errorf("%w: %s", errDuplicate, h.placeTaken(holder))
		}
		now = before.DeepCopy()
		h.fill(now)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		err = h.Exchange.Client.Patch(ctx, now, patch, client.FieldOwner(model.FieldOwner))
	}
	if err != nil {
		return fmt.Errorf("renew Lease %s: %w", h.member(), err)
	}
	h.held(h.ClusterUID)
	h.lease = now
	return nil
}

func (h *heartbeat) fill(lease *coordinationv1.Lease) {
	seconds := max(1, int32(leaseBeats*h.HeartbeatInterval/time.Second)) //nolint:gosec // an interval of centuries is no interval
	delete(lease.Annotations, model.AnnotationCatchingUp)
	if !h.caughtUp {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, model.AnnotationCatchingUp, "true")
	}
	lease.Spec.HolderIdentity = ptr.To(string(h.Self))
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(h.Clock.Now()))
}

// heldBy is who holds the place of this cluster's id in the exchange: the cluster that
// created the Lease there, by the UID of its kube-system namespace; empty if that is not
// known. A create succeeds once, so of two clusters with one id that join an empty hub at
// the same moment, one at most holds the place. A record cannot show that: both apply it as
// the same field manager, and both succeed.
//
// In a hub nothing is published before the place is held. While it is held, everything in
// the exchange namespaces is this cluster's own, however it came back there.
func (b *base) heldBy() types.UID {
	holder, _ := b.claim.Load().(types.UID)
	return holder
}

// holdsPlace reports whether this cluster holds the place of its id.
func (b *base) holdsPlace() bool { return b.ClusterUID != "" && b.heldBy() == b.ClusterUID }

// notHeldYet says that nobody is known to hold the place in the hub.
func (b *base) notHeldYet() string {
	return fmt.Sprintf("Lease %s in the hub is not held by this cluster yet, so nothing is published; if this stays, see the log", b.member())
}

// placeTaken says that the place of this cluster's id is another cluster's.
func (b *base) placeTaken(holder types.UID) string {
	return fmt.Sprintf("Lease %s in the exchange is of another cluster with this id (its kube-system namespace has the UID %s, this one's %s), so nothing is published; "+
		"give one of the two another id, or, if that cluster is gone, delete its Lease", b.member(), holder, b.ClusterUID)
}
