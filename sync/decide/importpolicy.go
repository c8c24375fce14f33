// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// policyRetry is how soon an import is decided again for which policies could not be
// evaluated. Most causes end with an event; an evaluation that took too long does not.
const policyRetry = time.Minute

// sourceRules are what the administrators of this cluster say of importing from
// another: the annotation comity.dev/import-from of the Namespace, and the policies
// with stage Import. This cluster's own export is limited by neither.
type sourceRules struct {
	namespace string
	from      model.Scope
	err       error // from cannot be read
	verdicts  map[model.ClusterID]decision.Verdict
}

func (v ImportView) sourceRules() sourceRules {
	r := sourceRules{namespace: v.Local.Key.Namespace, from: model.ScopeAll()}
	if v.ImportDisabled { // nothing is written here, so nothing can be kept out
		return r
	}
	r.verdicts = v.Verdicts
	if v.Local.Namespace != nil {
		r.from, r.err = model.SourcesOfNamespace(v.Local.Namespace)
	}
	return r
}

// outcome says whether the export of a cluster may be imported, and why not. First
// match wins:
//
//	the annotation lists other clusters      Denied
//	a policy denies it                       Denied
//	the annotation cannot be read            NotEvaluated
//	the policies could not be evaluated      NotEvaluated
//	otherwise                                Allowed
func (r sourceRules) outcome(id model.ClusterID) (outcome decision.Outcome, why string) {
	verdict := decision.Verdict{Outcome: decision.Allowed}
	if r.verdicts != nil {
		verdict = r.verdicts[id]
	}
	switch {
	case r.err == nil && !r.from.Contains(id):
		return decision.Denied, fmt.Sprintf("Namespace %s, annotation %s: it does not list cluster %s; to import from there, add it", r.namespace, model.AnnotationImportFrom, id)
	case verdict.Outcome == decision.Denied:
		return decision.Denied, sentences(verdict.Violations)
	case r.err != nil:
		return decision.NotEvaluated, fmt.Sprintf("Namespace %s, annotation %s: %v", r.namespace, model.AnnotationImportFrom, r.err)
	case verdict.Outcome == decision.Allowed:
		return decision.Allowed, ""
	}
	if verdict.Problem == "" {
		return decision.NotEvaluated, "the import policies were not evaluated for it"
	}
	return decision.NotEvaluated, verdict.Problem
}

func sentences(violations []decision.Violation) string {
	out := make([]string, len(violations))
	for i, violation := range violations {
		out[i] = violation.String()
	}
	return strings.Join(out, " ")
}

// Refused are the clusters, read or not, of which nothing is imported, whatever exists:
// those of NotAccepted, and those that a policy or the annotation
// comity.dev/import-from denies. An export of theirs that is missing is not put on hold.
func (v ImportView) Refused() []model.ClusterID {
	rules := v.sourceRules()
	denied := func(id model.ClusterID) bool {
		outcome, _ := rules.outcome(id)
		return outcome == decision.Denied
	}
	var ids []model.ClusterID
	for _, m := range v.Members {
		ids = append(ids, m.ID)
	}
	return union(v.NotAccepted, slices.DeleteFunc(union(ids, v.sources()), func(id model.ClusterID) bool { return !denied(id) }))
}

// sources are the other clusters whose exports were read, and those that contribute.
func (v ImportView) sources() []model.ClusterID {
	var ids []model.ClusterID
	for _, e := range v.Exports {
		ids = append(ids, e.Cluster)
	}
	for _, s := range Standing(v.Current, v.Self) {
		ids = append(ids, s.Cluster)
	}
	return union(ids)
}

// policyProblems name the sources that policies keep out, or may, and what policies
// warn of. A member of which the administrator accepts nothing is not among them.
func (v ImportView) policyProblems() []model.Problem {
	rules := v.sourceRules()
	var out []model.Problem
	for _, id := range v.sources() {
		if slices.Contains(v.NotAccepted, id) {
			continue
		}
		switch outcome, why := rules.outcome(id); outcome {
		case decision.Denied:
			out = append(out, problem(model.ReasonPolicyDenied, id, "the export of cluster %s is not imported: %s", id, why))
		case decision.NotEvaluated:
			if slices.ContainsFunc(v.Exports, isOf(id)) {
				out = append(out, problem(model.ReasonNotEvaluated, id,
					"whether the export of cluster %s may be imported could not be evaluated; what was imported of it stays as it is, and nothing new is imported: %s", id, why))
			}
		case decision.Allowed:
			if warnings := rules.verdicts[id].Warnings; len(warnings) > 0 {
				// Of no cluster, since it is no reason to report: the export is imported.
				out = append(out, problem(model.ReasonPolicyWarning, "", "the export of cluster %s: %s", id, sentences(warnings)))
			}
		}
	}
	return out
}

// problem has a message that policies wrote, possibly with text of another cluster.
func problem(reason string, of model.ClusterID, format string, args ...any) model.Problem {
	return model.Problem{Reason: reason, Cluster: of, Message: model.OneLine(fmt.Sprintf(format, args...), maxMessage)}
}

func isOf(id model.ClusterID) func(model.Export) bool {
	return func(e model.Export) bool { return e.Cluster == id }
}

// byPolicy is what is reported to source if policies of this cluster keep its export
// out; false if they do not. It names no other cluster, and of what could not be
// evaluated no more than that.
func (v ReportView) byPolicy(source model.ClusterID) (result, bool) {
	for _, p := range v.problems() {
		switch {
		case p.Cluster != source:
		case p.Reason == model.ReasonPolicyDenied:
			return result{reason: p.Reason, message: p.Message}, true
		case p.Reason == model.ReasonNotEvaluated:
			return result{imported: v.contributes(source), reason: p.Reason, message: fmt.Sprintf(
				"cluster %s could not evaluate whether it may import the export; what it imported before stays, and nothing new is imported; "+
					"the ExportPolicies there, and annotation %s of Namespace %s there, say why", v.Self, model.AnnotationImportFrom, v.Key.Namespace)}, true
		}
	}
	return result{}, false
}
