// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/comity-mcs/comity/policies/decision"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/webhook/facts"
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
	Review(ctx context.Context, req facts.Request) decision.Verdict
}

// PolicyChecker checks whether a policy could be used. The error says in which
// field, or at which file:row:column of its module, it could not.
type PolicyChecker interface {
	Check(policy *policyv1alpha1.ExportPolicy) error
}

// Options of Register. Reviewer is required.
type Options struct {
	Reviewer Reviewer
	// Policies checks ExportPolicies before they are stored. When nil, every
	// one is stored, and its condition Compiled has the result.
	Policies PolicyChecker
	// Exports finds the ServiceExport of a Service. The manager's uncached
	// reader when nil: such requests are rare, and an export that was created a
	// moment ago must be found.
	Exports client.Reader
	// Registerer takes the metrics; controller-runtime's when nil.
	Registerer prometheus.Registerer
	// Clock measures how long answers take; the real one when nil.
	Clock clock.PassiveClock
	// Logger is the manager's, named webhook, when it has no sink.
	Logger logr.Logger
}

// Register adds the webhooks to the manager's webhook server. It fails on
// missing options and on a registerer that refuses the metrics.
func Register(mgr ctrl.Manager, opts Options) error {
	if opts.Exports == nil {
		opts.Exports = mgr.GetAPIReader()
	}
	if opts.Logger.GetSink() == nil {
		opts.Logger = mgr.GetLogger().WithName("webhook")
	}
	hooks, err := hooks(opts)
	if err != nil {
		return err
	}
	for path, hook := range hooks {
		mgr.GetWebhookServer().Register(path, hook)
	}
	return nil
}

// hooks lists the webhooks by path.
func hooks(opts Options) (map[string]http.Handler, error) {
	if opts.Reviewer == nil {
		return nil, errors.New("webhook.Options.Reviewer is nil; expected a facts.Reviewer")
	}
	if opts.Registerer == nil {
		opts.Registerer = metrics.Registry
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	seconds, err := newDuration(opts.Registerer)
	if err != nil {
		return nil, err
	}
	handlers := map[string]admission.HandlerFunc{
		PathMutateServiceExport:   mutateServiceExport,
		PathValidateServiceExport: exportValidator{opts.Reviewer}.handle,
		PathValidateService:       serviceValidator{opts.Reviewer, opts.Exports}.handle,
		PathValidateExportPolicy:  policyValidator{opts.Policies}.handle,
	}
	hooks := make(map[string]http.Handler, len(handlers))
	for path, handler := range handlers {
		hooks[path] = &admission.Webhook{
			Handler:         instrument(path[1:], handler, seconds, opts.Clock),
			WithContextFunc: withBudget,
			LogConstructor: func(_ logr.Logger, req *admission.Request) logr.Logger {
				return admission.DefaultLogConstructor(opts.Logger.WithValues("webhook", path[1:]), req)
			},
		}
	}
	return hooks, nil
}
