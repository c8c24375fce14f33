// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// Observations has the results of the sync loop.
type Observations interface {
	// Observe is the last observation of a namespace/name; false if the loop
	// has not worked on it since it started.
	Observe(key types.NamespacedName) (model.Observation, bool)
	// Changed notifies of namespace/names for which Observe may return something else.
	Changed() *notify.Notifier
	// Destinations are those of one local export, sorted by cluster, without
	// this cluster; false as long as it is not known where the export goes.
	Destinations(key types.NamespacedName) ([]model.Destination, bool)
	// DestinationsChanged notifies of exports for which Destinations may return
	// something else though Changed does not notify of them.
	DestinationsChanged() *notify.Notifier
}

// Verdicts has the answer of the policies on a stored export.
type Verdicts interface {
	Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict
}

// Options configure the status controller. Fields without a default are required.
type Options struct {
	Observations Observations
	Verdicts     Verdicts
	// ForeignImports lets Comity add what it knows to ServiceImports that another
	// implementation made, on fields without another owner: for clusters in which
	// Comity does not import. Otherwise they are left alone.
	ForeignImports bool
	// PoliciesChanged notifies of exports for which the policies may decide
	// something else.
	PoliciesChanged *notify.Notifier
	// Interval is the least time between two writes of one object's status that
	// other clusters caused; default 5 s.
	Interval time.Duration
	// FirstStatus is until what age of an export its first status waits for Observations, so
	// that it is written once; default 5 s.
	FirstStatus time.Duration
	// Workers is how many objects of each kind are worked on at once; default 4.
	Workers int
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Recorder takes events; default one of the manager's, which reports as "comity".
	Recorder events.EventRecorder
}

// burst is how many urgent writes one object may have without a pause: an
// export or an import takes two to four from its creation until it works.
const burst = 5

// logReason is the log key of a condition's reason.
const logReason = "reason"

// SetupWithManager adds the reconcilers for ServiceExports and ServiceImports
// to mgr. The manager's cache must hold both, and Services, Namespaces and
// EndpointSlices, with manager, operation and subresource of managedFields.
//
// The agent needs: get, list and watch on all of these, patch on
// serviceexports/status and serviceimports/status, create and patch on events
// (events.k8s.io).
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	if o.Observations == nil || o.Verdicts == nil || o.PoliciesChanged == nil {
		return errors.New("status: Observations, Verdicts and PoliciesChanged are required")
	}
	o.Workers = cmp.Or(o.Workers, 4)
	o.Interval = cmp.Or(o.Interval, 5*time.Second)
	o.FirstStatus = cmp.Or(o.FirstStatus, 5*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Recorder == nil {
		o.Recorder = mgr.GetEventRecorder(model.FieldOwner)
	}
	shared := reconciler{client: mgr.GetClient(), options: o, limiter: newRateLimiter(o.Interval, burst)}
	exports := &exportReconciler{shared}
	if err := exports.setup(mgr); err != nil {
		return fmt.Errorf("status of ServiceExports: %w", err)
	}
	imports := &importReconciler{reconciler: shared}
	if err := imports.setup(mgr); err != nil {
		return fmt.Errorf("status of ServiceImports: %w", err)
	}
	return nil
}

// logger is the one of the reconciliation that ctx belongs to.
func logger(ctx context.Context) logr.Logger { return ctrl.LoggerFrom(ctx) }
