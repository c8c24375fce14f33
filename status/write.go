// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// reconciler writes the status of ServiceExports, or of ServiceImports.
type reconciler struct {
	Options
	kind     string // of the objects, which a typed client leaves out of them
	client   client.Client
	recorder events.EventRecorder
	limiter  *rateLimiter
	// foreign has, by UID, what was last applied to each ServiceImport that another
	// implementation made. The same status is not applied twice: a field that is missing
	// was removed or refused there, and would be again.
	foreign *lru.Cache
}

// maxForeign is of how many ServiceImports that is kept: of more than a cluster should ever have.
const maxForeign = 100_000

// service is a Service; nil if there is none.
func (r reconciler) service(ctx context.Context, key client.ObjectKey) (*corev1.Service, error) {
	service := &corev1.Service{}
	if err := r.client.Get(ctx, key, service); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read Service %s: %w", key, err)
	}
	return service, nil
}

// save writes the status that is wanted of an object, a pointer, once its limit allows it, and
// then records the conditions that moved.
func (r reconciler) save(ctx context.Context, object client.Object, wanted any, urgent bool, moved []metav1.Condition) (ctrl.Result, error) {
	return r.limited(object, urgent, func() (bool, error) {
		written, err := r.write(ctx, object, wanted, client.ForceOwnership)
		if written {
			r.recordEvents(ctx, object, moved)
		}
		return written, err
	})
}

// limited calls write, which reports whether it wrote the status of object, once its limit allows that.
func (r reconciler) limited(object client.Object, urgent bool, write func() (bool, error)) (ctrl.Result, error) {
	now := r.Now()
	if wait := r.limiter.delay(object.GetUID(), urgent, now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	written, err := write()
	if written {
		r.limiter.wrote(object.GetUID(), urgent, now)
	}
	return ctrl.Result{}, err
}

// write applies status, a pointer, to the very version of object that it was computed from
// and reports whether it was written.
//
// Without that precondition a stale cache would make the same transition twice,
// with another time and a second event. If the object changed or is gone, that is
// no error: its watch event brings it back to the queue. Nor is it one that nothing
// is written while the namespace of Comity is being deleted. A field of another owner
// is an error, unless options force the apply.
func (r reconciler) write(ctx context.Context, object client.Object, status any, options ...client.SubResourceApplyOption) (bool, error) {
	u := model.StatusOf(object, mcsv1beta1.SchemeGroupVersion.WithKind(r.kind), status)
	options = append(options, client.FieldOwner(model.FieldOwner))
	return r.written(ctx, object, r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...))
}

// written reports whether a write of the status of an object that ended with err was made.
func (r reconciler) written(ctx context.Context, object client.Object, err error) (bool, error) {
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err) && len(owned(err)) == 0:
		ctrl.LoggerFrom(ctx).V(1).Info("the object changed meanwhile; waiting for its new version")
		return false, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("write the status of %s %s: %w", r.kind, client.ObjectKeyFromObject(object), err)
	}
	return true, nil
}

// owned lists the fields that have another owner, from the error of an apply
// without force; none if it failed for another reason.
func owned(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			fields = append(fields, cause.Field)
		}
	}
	return fields
}

// maxEventReason is the API's limit on the reason of an event, in characters.
const maxEventReason = 128

// recordEvents records one event per transition of an object. Reason
// and message are the condition's; the events API also wants an action, its type.
func (r reconciler) recordEvents(ctx context.Context, object client.Object, moved []metav1.Condition) {
	for _, c := range moved {
		ctrl.LoggerFrom(ctx).Info("condition changed", "condition", c.Type, "status", c.Status, logReason, c.Reason)
		r.recorder.Eventf(object, nil, eventType(r.kind, c), eventReason(c.Reason), c.Type, "%s", c.Message)
	}
}

// eventType is Warning for a state that needs attention.
func eventType(kind string, c metav1.Condition) string {
	if condition.Warns(kind, c) {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// eventReason drops whole words of a list of reasons until it fits.
func eventReason(reason string) string {
	if len(reason) <= maxEventReason {
		return reason
	}
	if cut := strings.LastIndexByte(reason[:maxEventReason+1], ','); cut >= 0 {
		return reason[:cut]
	}
	return reason[:maxEventReason]
}

// rateLimiter limits how often the status of one object is written, so that
// other clusters which change every second do not cause as many writes and events
// here. It starts no timer: a caller that has to wait computes the status again
// afterwards, and so always writes the latest. It is safe for concurrent use, by one
// caller at a time for each object.
//
//	change      may be written
//	deferrable  once per interval, and no more often than an urgent one
//	urgent      at once up to burst times, then once per interval
type rateLimiter struct {
	interval time.Duration
	burst    int
	objects  *lru.Cache // types.UID → limits
}

// maxLimited is of how many objects the recent writes are known. What was written longer
// ago than so many others may be written at once.
const maxLimited = 10_000

// limits are those of one object: of all its writes, and of the deferrable ones.
type limits struct{ all, deferrable *rate.Limiter }

func newRateLimiter(interval time.Duration, burst int) *rateLimiter {
	return &rateLimiter{interval: interval, burst: burst, objects: lru.New(maxLimited)}
}

// delay is how long to wait before a change of the object may be written. A
// change that is urgent in part is urgent.
func (l *rateLimiter) delay(uid types.UID, urgent bool, now time.Time) time.Duration {
	of := l.of(uid)
	free := of.all.TokensAt(now)
	if !urgent {
		free = min(free, of.deferrable.TokensAt(now))
	}
	return max(0, time.Duration(math.Round((1-free)*float64(l.interval))))
}

// wrote notes that a change was written.
func (l *rateLimiter) wrote(uid types.UID, urgent bool, now time.Time) {
	of := l.of(uid)
	of.all.ReserveN(now, 1)
	if !urgent {
		of.deferrable.ReserveN(now, 1)
	}
}

func (l *rateLimiter) of(uid types.UID) limits {
	if known, is := l.objects.Get(uid); is {
		return known.(limits)
	}
	every := rate.Every(l.interval)
	added := limits{rate.NewLimiter(every, l.burst), rate.NewLimiter(every, 1)}
	l.objects.Add(uid, added)
	return added
}
