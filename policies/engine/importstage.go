// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Stages are what a policy can decide on.
var Stages = []v1alpha1.Stage{v1alpha1.StageExport, v1alpha1.StageImport}

// inputSchema is the JSON Schema of input at a stage.
func inputSchema(stage v1alpha1.Stage) (schema map[string]any) {
	if err := json.Unmarshal(policies.InputSchema(string(stage)), &schema); err != nil {
		panic(fmt.Sprintf("engine: embedded schema of the input: %v", err))
	}
	return schema
}

// isOf reports whether the policy counts at a stage: one of which the stage is not
// known counts at every one.
func (v *version) isOf(stage v1alpha1.Stage) bool { return v.Stage == "" || v.Stage == stage }

// anyField, in a path of input, is a field of which the name is not known before the
// evaluation, or all of them.
const anyField = "*"

// readInput finds what rules, which were compiled, do with input. reads are the fields that they
// read, with the fields of these, and where first: "export.ports", or "export.*" for what is used as a
// whole or by a key that is not known before the evaluation. All of input is "*". whole is true if
// they may do with input as a whole what an input that is converted bit by bit does not support:
// give it to another rule or to a builtin, which may write it as JSON, or replace a part of it
// by `with`.
func (v *version) readInput(rules []*ast.Rule) {
	v.reads = map[string]*ast.Location{}
	for _, rule := range rules {
		ast.WalkRefs(rule, func(ref ast.Ref) bool {
			if !ref.HasPrefix(ast.InputRootRef) {
				return false
			}
			path := element(ref, 1)
			if path == anyField {
				v.whole = true
			} else {
				path += "." + element(ref, 2)
			}
			if v.reads[path] == nil {
				v.reads[path] = cmp.Or(position(ref[min(1, len(ref)-1)]), rule.Location)
			}
			return false
		})
		ast.WalkExprs(rule, func(expr *ast.Expr) bool {
			v.whole = v.whole || len(expr.With) > 0
			return false
		})
	}
}

// element is the name at a position of a reference; anyField if there is none.
func element(ref ast.Ref, at int) string {
	if len(ref) > at {
		if name, is := ref[at].Value.(ast.String); is {
			return string(name)
		}
	}
	return anyField
}

// placeOf is where a reference is written; otherwise if that is not known. OPA gives to each use of an
// import the place of its last use, but not to what follows the import.
func placeOf(ref ast.Ref, otherwise *ast.Location) *ast.Location {
	first, last := position(ref[0]), position(ref[len(ref)-1])
	if first == nil || last != nil && last.Row != first.Row {
		first = last
	}
	return cmp.Or(first, otherwise)
}

// position is where a term is written; nil for one that the compiler made.
func position(term *ast.Term) *ast.Location {
	if term.Location == nil || term.Location.Row == 0 {
		return nil
	}
	return term.Location
}
