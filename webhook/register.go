// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/policies/decision"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Paths of the webhooks, as config/webhook names them.
const (
	PathMutateServiceExport   = "/mutate-serviceexport"
	PathValidateServiceExport = "/validate-serviceexport"
	PathValidateService       = "/validate-service"
	PathValidateExportPolicy  = "/validate-exportpolicy"
)

// Reviewer gives the verdict of all policies on a request; facts.Reviewer is one.
type Reviewer interface {
	Review(ctx context.Context, request decision.Input) decision.Verdict
}

// PolicyChecker checks policies before they are stored; controller.Checker is one.
type PolicyChecker interface {
	// Check says what storing a policy would do to what is stored, one line for each kind of
	// effect, or in which field, or at which file:row:column of its module, it could not be
	// used. It ends well before ctx does.
	Check(ctx context.Context, policy *policyv1alpha1.ExportPolicy) (would []string, _ error)
}

// Options of Register. Reviewer is required.
type Options struct {
	Reviewer Reviewer
	// Policies checks ExportPolicies before they are stored, and warns of what they would
	// do. When nil, every one is stored, and its condition Compiled has the result.
	Policies PolicyChecker
	// Live finds the ServiceExport of a Service, and the Service of an export that names
	// its ports (model.AnnotationExportPorts). Register takes the manager's uncached reader: such
	// requests are rare, and what was created a moment ago must be found.
	Live client.Reader
	// Conflicts predicts the conflicts of exports; nil predicts none.
	Conflicts Forecaster
	// ClientNames are the names (common name or DNS names) of which the certificate
	// of a client must have one; none: any. They need ClientCertificates.
	ClientNames []string
	// Stopping is closed when this replica will stop soon. From then on each answer ends its
	// connection, so that the API server goes to another replica before this one closes a
	// connection on which a request may be coming. Nil is never closed.
	Stopping <-chan struct{}
	// Registerer takes the metrics; none does when nil.
	Registerer prometheus.Registerer
	// Recorder writes events about refused requests. Register takes one of the manager's.
	Recorder events.EventRecorder
	// Clock measures how long answers take; the real one when nil.
	Clock clock.PassiveClock
	// Logger is, with Register, the manager's, named webhook.
	Logger logr.Logger
}

// webhooks have the handlers of all requests.
type webhooks struct {
	Options
	seconds  *prometheus.HistogramVec // of answers
	limiters *lru.Cache               // of events, by namespace
}

// Register adds the webhooks to the manager's webhook server.
//
// The agent needs: create and patch on events (events.k8s.io).
func Register(mgr ctrl.Manager, opts Options) {
	opts.Live, opts.Logger, opts.Recorder = mgr.GetAPIReader(), mgr.GetLogger().WithName("webhook"), mgr.GetEventRecorder(model.FieldOwner)
	for path, handler := range Handlers(opts) {
		mgr.GetWebhookServer().Register(path, handler)
	}
}

// Handlers are the webhooks by path, for a server without a manager. There are no
// events without a Recorder, and Live is required for Services.
func Handlers(opts Options) map[string]http.Handler {
	opts.Clock = cmp.Or[clock.PassiveClock](opts.Clock, clock.RealClock{})
	all, gate := webhooks{opts, newDuration(opts.Registerer), lru.New(maxLimiters)}, newGate(opts)
	served := map[string]http.Handler{}
	for path, handle := range map[string]handler{
		PathMutateServiceExport:   onWrite(mutateServiceExport),
		PathValidateServiceExport: onWrite(all.validateServiceExport),
		PathValidateService:       onWrite(all.validateService),
		PathValidateExportPolicy:  onWrite(all.validateExportPolicy),
	} {
		served[path] = gate.through(server{all, path[1:], handle, opts.Logger.WithValues("webhook", path[1:])}.serve)
	}
	return served
}
