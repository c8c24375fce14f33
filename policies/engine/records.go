// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Evaluation is what one policy contributed to a verdict.
type Evaluation struct {
	Policy string
	// Result is Allowed, Warned, Denied or NotEvaluated; empty for an evaluation beside
	// those for the verdict.
	Result string
	// Took is how long its rules took; 0 if they were not evaluated.
	Took time.Duration
	// Failure is what failed; empty if nothing did, or if that is not the policy's fault.
	Failure string
}

// resultWarned is the fourth result, beside the outcomes of a verdict: the policy denies
// nothing and warns.
const resultWarned = "Warned"

// evaluations are those of a decision.
func (d *deciding) evaluations(ctx context.Context) []Evaluation {
	all := make([]Evaluation, 0, len(d.answers)+len(d.before)+len(d.Failed))
	for i, a := range slices.Concat(d.answers, d.before) {
		one := Evaluation{Policy: a.policy.Name, Took: a.took}
		if i < len(d.answers) {
			one.Result = d.result(a)
		}
		known := d.failed[a.policy.Name] != ""
		if a.err != nil && (known || ctx.Err() == nil) { // else it is not known whose time it was
			one.Failure = a.err.Error()
		}
		all = append(all, one)
	}
	for _, name := range d.Failed {
		if !slices.ContainsFunc(d.answers, func(a answer) bool { return a.policy.Name == name }) { // it cannot be used
			all = append(all, Evaluation{Policy: name, Result: decision.NotEvaluated.String()})
		}
	}
	return all
}

// result is what a policy contributed to a verdict.
func (d *deciding) result(a answer) string {
	by := func(v decision.Violation) bool { return v.Policy == a.policy.Name }
	switch {
	case a.err != nil:
		return decision.NotEvaluated.String()
	case slices.ContainsFunc(d.Violations, by):
		return decision.Denied.String()
	case slices.ContainsFunc(d.Warnings, by):
		return resultWarned
	default:
		return decision.Allowed.String()
	}
}

// IsExhausted reports whether a policy failed because it took more than it may or, by the error of
// a Result, is in quarantine for that.
func IsExhausted(why string) bool { return strings.HasPrefix(why, v1alpha1.ReasonResourceExhausted) }

// Failure is what failed when a policy was evaluated.
type Failure struct {
	// Count is how many evaluations failed since this version of the policy was
	// loaded in this process.
	Count int64
	// Object, Operation and Message are those of the last one: kind, namespace and
	// name, what was evaluated, and what failed.
	Object    string
	Operation decision.Operation
	Message   string
}

// Records are what evaluations did: metrics, and the failures of each policy. All methods
// are safe for concurrent use.
type Records struct {
	results *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	// failed holds one element after a failure.
	failed   chan struct{}
	mu       sync.Mutex
	versions map[string]string // what is loaded: digests by name
	failures map[string]Failure
}

// NewRecords registers the metrics, unless reg is nil.
func NewRecords(reg prometheus.Registerer) *Records {
	with := promauto.With(reg)
	return &Records{
		failed: make(chan struct{}, 1), failures: map[string]Failure{},
		results: with.NewCounterVec(prometheus.CounterOpts{
			Name: "comity_policy_evaluations_total",
			Help: "Evaluations of an ExportPolicy, in requests and of stored objects, by policy and result (Allowed, Warned, Denied, NotEvaluated).",
		}, []string{"policy", "result"}),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "comity_policy_evaluation_duration_seconds",
			Help: "Time that the rules of an ExportPolicy took in one evaluation, also one that failed or was stopped, by policy and cause (Request, Audit).",
			// From a rule that compares two fields to the engine's timeout.
			Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5},
		}, []string{"policy", "cause"}),
	}
}

// Record adds the evaluations of one decision.
func (r *Records) Record(on *Subject, evaluations []Evaluation) {
	cause := "Request"
	if on.Operation == decision.Audit {
		cause = "Audit"
	}
	for _, one := range evaluations {
		if one.Result != "" {
			r.results.WithLabelValues(one.Policy, one.Result).Inc()
		}
		if one.Took > 0 {
			r.seconds.WithLabelValues(one.Policy, cause).Observe(one.Took.Seconds())
		}
		if one.Failure == "" {
			continue
		}
		r.mu.Lock()
		r.failures[one.Policy] = Failure{Count: r.failures[one.Policy].Count + 1, Object: on.String(), Operation: on.Operation, Message: one.Failure}
		r.mu.Unlock()
		r.Notify()
	}
}

// Notify is as a failure to whoever receives from Failed.
func (r *Records) Notify() {
	select {
	case r.failed <- struct{}{}:
	default:
	}
}

// Failures are those of the policies that are loaded, by name of the policy; a
// policy that never failed is not there.
func (r *Records) Failures() map[string]Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.failures)
}

// Failed receives after a failure; failures that nobody received yet count as one.
func (r *Records) Failed() <-chan struct{} { return r.failed }

// Keep forgets the metrics of policies that are gone, and the failures of versions that
// are. versions are the digests of those that are loaded, by name.
func (r *Records) Keep(versions map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, digest := range r.versions {
		now, loaded := versions[name]
		if !loaded {
			r.results.DeletePartialMatch(prometheus.Labels{"policy": name})
			r.seconds.DeletePartialMatch(prometheus.Labels{"policy": name})
		}
		if now != digest {
			delete(r.failures, name)
		}
	}
	r.versions = versions
}
