// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies/decision"
)

// clusters reads the clusters to which an entry is limited, sorted, each once; nil if
// given is nil. An empty list is a problem, too: it would mean that nobody is refused.
func clusters(given *ast.Term) (ids []string, problem string) {
	if given == nil {
		return nil, ""
	}
	list, ok := given.Value.(*ast.Array)
	if !ok {
		return nil, fmt.Sprintf("is %s", given)
	}
	if list.Len() == 0 {
		return nil, "is an empty list"
	}
	for i := range list.Len() {
		id, ok := list.Elem(i).Value.(ast.String)
		if !ok {
			return nil, fmt.Sprintf("has the element %s", list.Elem(i))
		}
		ids = append(ids, string(id))
	}
	slices.Sort(ids)
	return slices.Compact(ids), ""
}

// exclude limits a denial in an audit to the clusters that its violations name, if
// every one names some: only these lose the export.
func exclude(verdict *decision.Verdict, operation decision.Operation) {
	if operation != decision.Audit || verdict.Outcome != decision.Denied {
		return
	}
	var excluded []string
	for _, v := range verdict.Violations {
		if len(v.Clusters) == 0 {
			return
		}
		excluded = append(excluded, v.Clusters...)
	}
	slices.Sort(excluded)
	verdict.Outcome, verdict.Excluded = decision.Allowed, slices.Compact(excluded)
}
