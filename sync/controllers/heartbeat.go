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

	"github.com/comity-mcs/comity/sync/model"
)

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
	problem := h.Exchange.Problem(ctx, h.member().Namespace)
	if h.hub && problem == "" { // that nobody else holds the place is what the Lease itself shows
		problem = h.duplicateRecord(ctx)
	}
	if problem != "" {
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
		now = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: h.member().Namespace, Name: h.member().Name,
			Labels:      map[string]string{"app.kubernetes.io/managed-by": model.ManagedBy},
			Annotations: map[string]string{model.AnnotationClusterUID: string(h.ClusterUID)},
		}}
		h.fill(now)
		now.Spec.AcquireTime = now.Spec.RenewTime
		err = h.Exchange.Client.Create(ctx, now, client.FieldOwner(model.FieldOwner))
	} else {
		holder := before.Annotations[model.AnnotationClusterUID]
		h.held(cmp.Or(types.UID(holder), "unknown"))
		if holder != string(h.ClusterUID) {
			return fmt.Errorf("the Lease %s is held by the cluster whose kube-system namespace has UID %q, ours has %q: %w; "+
				"give one of the two another id, or delete the Lease if that cluster is gone", h.member(), holder, h.ClusterUID, errDuplicate)
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

// placeProblem is why the Lease in the hub keeps this cluster from publishing; "" if it does
// not.
func (b *base) placeProblem() string {
	switch holder := b.heldBy(); holder {
	case b.ClusterUID:
		return ""
	case "":
		return fmt.Sprintf("Lease %s in the hub is not held by this cluster yet, so nothing is published; if this stays, see the log", b.member())
	default:
		return b.placeTaken("Lease", holder)
	}
}

// placeTaken says that an object in the hub is of another cluster with this cluster's id.
func (b *base) placeTaken(kind string, holder types.UID) string {
	return fmt.Sprintf("%s %s in the hub is of another cluster with this id (its kube-system namespace has the UID %s, this one's %s), so nothing is published; "+
		"give one of the two another id, or, if that cluster is gone, delete its Lease and MemberRecord", kind, b.member(), holder, b.ClusterUID)
}
