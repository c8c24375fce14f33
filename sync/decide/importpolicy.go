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

// rule is what the administrators of this cluster say of importing from p: the
// annotation comity.dev/import-from of the Namespace, and the policies with stage
// Import. First match wins:
//
//	the annotation lists other clusters      Denied
//	a policy denies it                       Denied
//	the annotation cannot be read            NotEvaluated
//	the policies could not be evaluated      NotEvaluated
//	otherwise                                Allowed
func (v *ImportView) rule(p *PeerView) (outcome decision.Outcome, why string) {
	if v.ImportDisabled { // nothing is written here, so nothing can be kept out
		return decision.Allowed, ""
	}
	from, err := model.ScopeAll(), error(nil)
	if v.Local.Namespace != nil {
		from, err = model.SourcesOfNamespace(v.Local.Namespace)
	}
	verdict := decision.Verdict{Outcome: decision.Allowed}
	if p.Verdict != nil {
		verdict = *p.Verdict
	}
	namespace := v.Local.Key.Namespace
	switch {
	case err == nil && !from.Contains(p.ID):
		return decision.Denied, fmt.Sprintf("Namespace %s, annotation %s: it does not list cluster %s; to import from there, add it", namespace, model.AnnotationImportFrom, p.ID)
	case verdict.Outcome == decision.Denied:
		return decision.Denied, sentences(verdict.Violations)
	case err != nil:
		return decision.NotEvaluated, fmt.Sprintf("Namespace %s, annotation %s: %v", namespace, model.AnnotationImportFrom, err)
	case verdict.Outcome == decision.Allowed:
		return decision.Allowed, ""
	case verdict.Problem == "":
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

// ruleProblems name the sources that this cluster keeps out, or may, and what policies
// warn of.
func (v *ImportView) ruleProblems() []model.Problem {
	if v.ImportDisabled || v.Local.Namespace == nil { // nothing could be imported anyway
		return nil
	}
	list := v.stored()
	var out []model.Problem
	for i := range v.Peers {
		p := &v.Peers[i]
		if _, listed := list.Find(p.ID); p.Removed || p.Export == nil && !listed {
			continue
		}
		out = append(out, v.ruleProblem(p)...)
	}
	return out
}

func (v *ImportView) ruleProblem(p *PeerView) []model.Problem {
	const kept = "whether the export of cluster %s may be imported is not known; what was imported of it stays as it is, and nothing new is imported: %s"
	switch outcome, why := v.rule(p); {
	case p.NotAccepted:
		_, why = v.refuses(p)
		return v.keptOut(model.ReasonNamespaceNotAccepted, p, why)
	case outcome == decision.Denied:
		return v.keptOut(model.ReasonPolicyDenied, p, why)
	case p.Export == nil:
		return nil
	case outcome == decision.NotEvaluated:
		return []model.Problem{problem(model.ReasonNotEvaluated, p.ID, kept, p.ID, why)}
	}
	switch outcome, why := v.sameness(p); outcome {
	case decision.Denied:
		return v.keptOut(model.ReasonNamespaceMismatch, p, why)
	case decision.NotEvaluated:
		return []model.Problem{problem(model.ReasonNamespaceUnknown, p.ID, kept, p.ID, why)}
	}
	if p.Verdict != nil && len(p.Verdict.Warnings) > 0 {
		// Of no cluster, since it is no reason to report: the export is imported.
		return []model.Problem{problem(model.ReasonPolicyWarning, "", "the export of cluster %s: %s", p.ID, sentences(p.Verdict.Warnings))}
	}
	return nil
}

func (v *ImportView) keptOut(reason string, p *PeerView, why string) []model.Problem {
	return []model.Problem{problem(reason, p.ID, "the export of cluster %s is not imported: %s", p.ID, why)}
}

// problem has a message that policies wrote, possibly with text of another cluster.
func problem(reason string, of model.ClusterID, format string, args ...any) model.Problem {
	return model.Problem{Reason: reason, Cluster: of, Message: model.OneLine(fmt.Sprintf(format, args...), maxMessage)}
}

// isRule reports whether a problem of this reason says that this cluster keeps an export
// out, or may.
func isRule(reason string) bool {
	return slices.Contains([]string{model.ReasonPolicyDenied, model.ReasonNotEvaluated, model.ReasonNamespaceMismatch, model.ReasonNamespaceUnknown, model.ReasonNamespaceNotAccepted}, reason)
}

// byRule is what is reported to source if this cluster keeps its export out; false if it
// does not. It names no other cluster, and of what could not be evaluated no more than
// that.
func (v ReportView) byRule(source model.ClusterID) (result, bool) {
	for _, p := range v.problems() {
		if p.Cluster != source || !isRule(p.Reason) {
			continue
		}
		out := result{reason: p.Reason, message: p.Message}
		switch p.Reason {
		case model.ReasonNamespaceUnknown:
			out = result{imported: v.contributes(source), reason: p.Reason, message: fmt.Sprintf(
				"cluster %s does not know the identity of Namespace %s in cluster %s: the ExportRecord has no spec.namespace, and there is no valid NamespaceRecord; "+
					"what it imported before stays, and nothing new is imported; select the Namespace with --publish-namespaces there", v.Self, v.Key.Namespace, source)}
		case model.ReasonNotEvaluated:
			out = result{imported: v.contributes(source), reason: p.Reason, message: fmt.Sprintf(
				"cluster %s could not evaluate whether it may import the export; what it imported before stays, and nothing new is imported; "+
					"the ExportPolicies there, and annotation %s of Namespace %s there, say why", v.Self, model.AnnotationImportFrom, v.Key.Namespace)}
		}
		return out, true
	}
	return result{}, false
}
