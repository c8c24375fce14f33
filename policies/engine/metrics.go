// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// resultWarned is the fourth value of the label result, beside the outcomes of a
// verdict: the policy denies nothing and warns.
const resultWarned = "Warned"

// metrics count what each policy answered, and how long that took.
type metrics struct {
	evaluations *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
}

// newMetrics registers the metrics, unless reg is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	return &metrics{
		evaluations: with.NewCounterVec(prometheus.CounterOpts{
			Name: "comity_policy_evaluations_total",
			Help: "Evaluations of an ExportPolicy, in requests and of stored objects, by policy and result (Allowed, Warned, Denied, NotEvaluated).",
		}, []string{"policy", "result"}),
		seconds: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "comity_policy_evaluation_duration_seconds",
			Help: "Time that the rules of an ExportPolicy took in one evaluation, also one that failed or was stopped, by policy and cause (Request, Audit). What policies share is counted for the first that uses it.",
			// From a rule that compares two fields to the engine's timeout.
			Buckets: []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5},
		}, []string{"policy", "cause"}),
	}
}

// observe records how long a policy took in one evaluation.
func (m *metrics) observe(v *version, operation decision.Operation, took time.Duration) {
	cause := "Request"
	if operation == decision.Audit {
		cause = "Audit"
	}
	m.seconds.WithLabelValues(v.Name, cause).Observe(took.Seconds())
}

// time records how long each policy took in an evaluation that has ended.
func (m *metrics) time(at *progress, operation decision.Operation) {
	for i, span := range at.spans {
		end := at.end
		if i+1 < len(at.spans) {
			end = at.spans[i+1].start
		}
		m.observe(span.policy, operation, end.Sub(span.start))
	}
}

// count counts the policies that gave these answers, or failed, and those that cannot be
// used.
func (m *metrics) count(answers []answer, verdict *decision.Verdict) {
	for _, name := range verdict.Failed {
		m.evaluations.WithLabelValues(name, decision.NotEvaluated.String()).Inc()
	}
	for _, a := range answers {
		if a.err != nil {
			if a.policy.Enforcement != v1alpha1.Deny { // else it is among those
				m.evaluations.WithLabelValues(a.policy.Name, decision.NotEvaluated.String()).Inc()
			}
			continue
		}
		m.evaluations.WithLabelValues(a.policy.Name, resultOf(a.policy.Name, verdict)).Inc()
	}
}

// resultOf is what one policy contributed to a verdict.
func resultOf(policy string, verdict *decision.Verdict) string {
	by := func(v decision.Violation) bool { return v.Policy == policy }
	switch {
	case slices.ContainsFunc(verdict.Violations, by):
		return decision.Denied.String()
	case slices.ContainsFunc(verdict.Warnings, by):
		return resultWarned
	default:
		return decision.Allowed.String()
	}
}

// forget removes the metrics of policies that are gone.
func (m *metrics) forget(before, now *snapshot) {
	if before == nil {
		return
	}
	for name := range before.versions {
		if now.versions[name] == nil {
			m.evaluations.DeletePartialMatch(prometheus.Labels{"policy": name})
			m.seconds.DeletePartialMatch(prometheus.Labels{"policy": name})
		}
	}
}

// span is the time from when the rules of a policy began to be evaluated.
type span struct {
	policy *version
	start  time.Time
}
