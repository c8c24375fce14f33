// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

// policyRetry is how soon an import is decided again for which policies could not be
// evaluated. Most causes end with an event; an evaluation that took too long does not.
const policyRetry = time.Minute

// ruling is what this cluster says of importing from another one. Unless it is Allowed,
// reason is the word for it, and why says more.
type ruling struct {
	outcome     decision.Outcome
	reason, why string
}

// denies reports whether nothing may be imported.
func (r ruling) denies() bool { return r.outcome == decision.Denied }

// ruling is what the Peer, the annotation comity.dev/import-from of the Namespace, the
// policies with stage Import and the identity of the namespace say. First match wins:
//
//	the Peer does not accept the namespace   Denied        NamespaceNotAccepted
//	the annotation lists other clusters      Denied        PolicyDenied
//	a policy denies it                       Denied        PolicyDenied
//	the identity is another                  Denied        NamespaceMismatch
//	the identity is not known                NotEvaluated  NamespaceUnknown
//	the annotation cannot be read            NotEvaluated  NotEvaluated
//	the policies could not be evaluated      NotEvaluated  NotEvaluated
//	otherwise                                Allowed
func (v *ImportView) ruling(p *exchange.Published) ruling {
	namespace := v.Local.Key.Namespace
	if p.NotAccepted {
		return ruling{decision.Denied, model.ReasonNamespaceNotAccepted, fmt.Sprintf(
			"Peer %s, spec.acceptedNamespaces: it does not list Namespace %s; to import from there, add it", p.ID, namespace)}
	}
	from, err, verdict := model.ScopeAll(), error(nil), decision.Verdict{Outcome: decision.Allowed}
	if !v.ImportDisabled { // else nothing is written here, so nothing can be kept out
		if v.Local.Namespace != nil {
			from, err = model.SourcesOfNamespace(v.Local.Namespace)
		}
		if p.Verdict != nil {
			verdict = *p.Verdict
		}
	}
	switch {
	case err == nil && !from.Contains(p.ID):
		return ruling{decision.Denied, model.ReasonPolicyDenied, fmt.Sprintf(
			"Namespace %s, annotation %s: it does not list cluster %s; to import from there, add it", namespace, model.AnnotationImportFrom, p.ID)}
	case verdict.Outcome == decision.Denied:
		return ruling{decision.Denied, model.ReasonPolicyDenied, joinViolations(verdict.Violations, " ")}
	}
	if r := v.sameness(p); r.outcome != decision.Allowed {
		return r
	}
	switch {
	case err != nil:
		return ruling{decision.NotEvaluated, model.ReasonNotEvaluated, fmt.Sprintf("Namespace %s, annotation %s: %v", namespace, model.AnnotationImportFrom, err)}
	case verdict.Outcome != decision.Allowed:
		return ruling{decision.NotEvaluated, model.ReasonNotEvaluated, cmp.Or(verdict.Problem, "the import policies were not evaluated for it")}
	}
	return ruling{outcome: decision.Allowed}
}

// ruleProblems name the sources that this cluster keeps out, or may, and what policies
// warn of.
func (i *importing) ruleProblems() []model.Problem {
	if i.ImportDisabled || i.Local.Namespace == nil { // nothing could be imported anyway
		return nil
	}
	var out []model.Problem
	for _, p := range i.Peers {
		if _, listed := i.before.Find(p.ID); p.Removed || p.Export == nil && !listed {
			continue
		}
		switch r := i.rulings[p.ID]; {
		case r.denies():
			out = append(out, model.Problemf(r.reason, p.ID, "the export of cluster %s is not imported: %s", p.ID, r.why))
		case p.Export == nil:
		case r.outcome == decision.NotEvaluated:
			out = append(out, model.Problemf(r.reason, p.ID, "whether the export of cluster %s may be imported is not known, so nothing new of it is: %s", p.ID, r.why))
		case p.Verdict != nil && len(p.Verdict.Warnings) > 0:
			// Of no cluster, since it is no reason to report: the export is imported.
			out = append(out, model.Problemf(model.ReasonPolicyWarning, "", "the export of cluster %s: %s", p.ID, joinViolations(p.Verdict.Warnings, " ")))
		}
	}
	return out
}

// rules are the reasons of problems that say that this cluster keeps an export out, or may.
var rules = []string{model.ReasonPolicyDenied, model.ReasonNotEvaluated, model.ReasonNamespaceMismatch, model.ReasonNamespaceUnknown}

// sameness compares the identity of the namespace of an export, so that what the webhook
// of the exporter did not compare, because it was down or bypassed or the label came
// later, is not imported. Without the Namespace nothing is imported anyway.
func (v *ImportView) sameness(p *exchange.Published) ruling {
	if p.Export == nil || len(v.IdentityLabels) == 0 || v.Local.Namespace == nil {
		return ruling{outcome: decision.Allowed}
	}
	theirs, known := p.Namespace.Labels, p.Namespace.Presence == decision.Present
	if p.Export.Identity != nil {
		theirs, known = p.Export.Identity, true
	}
	if !known {
		return ruling{decision.NotEvaluated, model.ReasonNamespaceUnknown, fmt.Sprintf(
			"the identity of Namespace %s in cluster %s is not known; select the Namespace with --publish-namespaces there, or leave it out of "+
				"spec.acceptedNamespaces of Peer %s here",
			v.Local.Key.Namespace, p.ID, p.ID)}
	}
	// Other labels of theirs do not count: this cluster's administrator chooses them.
	for _, label := range v.IdentityLabels {
		here, has := v.Local.Namespace.Labels[label]
		there, had := theirs[label]
		if has != had || here != there {
			return ruling{decision.Denied, model.ReasonNamespaceMismatch, fmt.Sprintf(
				"label %s of Namespace %s is %s here and %s in cluster %s; give both the same value, or rename one of the namespaces",
				label, v.Local.Key.Namespace, show(v.Local.Namespace.Labels, label), show(theirs, label), p.ID)}
		}
	}
	return ruling{outcome: decision.Allowed}
}

func show(labels map[string]string, label string) string {
	if value, has := labels[label]; has {
		return model.Quote(value)
	}
	return "not set"
}
