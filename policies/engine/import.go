// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// HasImportPolicies reports whether EvaluateImport may answer anything but Allowed
// without a warning: there is a policy with stage Import, or nothing was loaded yet.
func (e *Engine) HasImportPolicies() bool {
	snap := e.current.Load()
	return snap == nil || len(snap.imports.order) > 0 || len(snap.imports.blocking) > 0
}

// EvaluateImport evaluates all policies with stage Import that match the import of one
// export from one source cluster, as an audit. It fails closed as Evaluate does.
//
// While the source cluster is not read, of its export no more than the name is known
// (ImportInput.Unread). A policy that reads more of it, or the labels of a cluster
// while they are not known, is not evaluated then. With enforcement Deny it makes the
// verdict NotEvaluated, unless another policy denies the import: what that one knows
// is enough for it.
//
// What a policy with `existing: Keep` denies is a warning if ImportInput.Imported.
func (e *Engine) EvaluateImport(ctx context.Context, in decision.ImportInput) decision.Verdict {
	loaded := e.current.Load()
	if loaded == nil {
		return decision.Verdict{Problem: "policies are not loaded yet"}
	}
	snap := loaded.imports
	verdict := decision.Verdict{Digest: snap.digest, Matched: snap.matchedImport(in)}
	matching, unknown := snap.matchingImport(in)
	var answers []answer
	if len(matching) > 0 {
		var err error
		if answers, err = patiently(ctx, func() ([]answer, error) {
			return e.runImport(ctx, snap, in, &progress{policies: matching})
		}); err != nil {
			verdict.Problem = err.Error()
			if v := failedPolicy(ctx, err); v != nil {
				verdict.Failed = []string{v.name}
				e.recordFailure(v, fmt.Sprintf("ServiceImport %s/%s from cluster %s", in.Export.Namespace, in.Export.Name, in.Source.Cluster), decision.Audit, err)
			}
			e.metrics.count(nil, &verdict)
			return verdict
		}
	}
	concludeImport(&verdict, in, answers)
	if verdict.Outcome == decision.Allowed {
		snap.blockImport(&verdict, in, unknown)
	}
	e.metrics.count(answers, &verdict)
	return verdict
}

// matchingImport are the policies that match the import, by package, and those of
// which the answer cannot be known now, sorted.
func (s *snapshot) matchingImport(in decision.ImportInput) (matching map[string]*version, unknown []*version) {
	matching = make(map[string]*version, len(s.order))
	for _, pkg := range s.order {
		switch v := s.byPackage[pkg]; {
		case !v.matchesImport(in):
		case v.needsMoreThan(in):
			unknown = append(unknown, v)
		default:
			matching[pkg] = v
		}
	}
	slices.SortFunc(unknown, func(a, b *version) int { return strings.Compare(a.name, b.name) })
	return matching, unknown
}

// matchedImport are the names of the policies that match the import, sorted, those
// that cannot be used among them.
func (s *snapshot) matchedImport(in decision.ImportInput) []string {
	var names []string
	for name, v := range s.versions {
		if v.isOf(v1alpha1.StageImport) && v.matchesImport(in) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// matchesImport reports whether the policy is to be evaluated for the import. One
// into a namespace that is not known is never exempt.
func (v *version) matchesImport(in decision.ImportInput) bool {
	return v.namespaces == nil || in.Namespace == nil || v.namespaces.Matches(labels.Set(in.Namespace.Labels))
}

// needsMoreThan reports whether the policy reads what is not known of the import.
func (v *version) needsMoreThan(in decision.ImportInput) bool {
	for path := range v.reads {
		field, of, _ := strings.Cut(path, ".")
		export := path == "*" || field == "export" && of != "namespace" && of != "name"
		labels := path == "*" || field == "source" && of != "cluster"
		if in.Unread && export || in.Source.Unknown && labels {
			return true
		}
	}
	return false
}

// blockImport makes the verdict NotEvaluated if a policy that cannot be used, or not
// with what is known, might have denied the import.
func (s *snapshot) blockImport(verdict *decision.Verdict, in decision.ImportInput, unknown []*version) {
	var problems []string
	for _, v := range s.blocking {
		if v.matchesImport(in) {
			problems = append(problems, v.problem())
			verdict.Failed = append(verdict.Failed, v.name)
		}
	}
	for _, v := range unknown {
		if v.enforcement == v1alpha1.Deny {
			problems = append(problems, fmt.Sprintf("policy %s reads what is not known of cluster %s yet", v.name, in.Source.Cluster))
		}
	}
	if len(problems) > 0 {
		verdict.Outcome, verdict.Problem = decision.NotEvaluated, strings.Join(problems, "; ")
	}
}

// concludeImport combines the answers into the verdict, as conclude does for an audit
// of an export.
func concludeImport(verdict *decision.Verdict, in decision.ImportInput, answers []answer) {
	for _, a := range answers {
		verdict.Warnings = append(verdict.Warnings, a.warn...)
		softening, exception := a.policy.importSoftening(in)
		if softening == decision.NotSoftened {
			verdict.Violations = append(verdict.Violations, a.deny...)
			continue
		}
		for _, v := range a.deny {
			v.Softening, v.Exception = softening, exception
			verdict.Warnings = append(verdict.Warnings, v)
		}
	}
	verdict.Violations, verdict.Warnings = sorted(verdict.Violations), sorted(verdict.Warnings)
	verdict.Outcome = decision.Allowed
	if len(verdict.Violations) > 0 {
		verdict.Outcome = decision.Denied
	}
}

// importSoftening is why what the policy denies of an import is only a warning.
func (v *version) importSoftening(in decision.ImportInput) (why decision.Softening, exception string) {
	if exception, is := v.exception(in.Export.Namespace, in.Export.Name); is {
		return decision.ByException, exception
	}
	switch {
	case v.enforcement != v1alpha1.Deny:
		return decision.ByEnforcement, ""
	case v.existing == v1alpha1.Keep && in.Imported:
		return decision.ByImported, ""
	}
	return decision.NotSoftened, ""
}

func (e *Engine) runImport(ctx context.Context, snap *snapshot, in decision.ImportInput, at *progress) ([]answer, error) {
	input, err := importValue(in)
	if err != nil {
		return nil, err
	}
	return e.runWith(ctx, snap, input, at)
}

// importValue is in as policies see it: as inputValue.
func importValue(in decision.ImportInput) (ast.Value, error) {
	in.Namespace = withoutManagedFields(in.Namespace)
	in.Source.Labels = notNilMap(in.Source.Labels)
	in.Export.Ports = notNil(in.Export.Ports)
	in.Export.Labels, in.Export.Annotations = notNilMap(in.Export.Labels), notNilMap(in.Export.Annotations)
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("write the input as JSON: %w", err)
	}
	value, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the input from JSON: %w", err)
	}
	return value, nil
}
