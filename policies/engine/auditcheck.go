// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// operationField says whether there is a request at all.
const operationField = "operation"

// absentInAudits are the fields of input that only a request has.
var absentInAudits = []string{"userInfo", "oldObject"}

// checkAudit refuses a module that reads what only a request has, and nowhere asks
// whether there is one. It would admit a request because of who makes it, say, and
// withdraw the export a moment later, when it is evaluated again without a user.
// Reading the operation in any rule is enough, also by way of the library.
func checkAudit(compiler *ast.Compiler, v *version) error {
	reads := inputFields(reachable(compiler, v))
	if _, asks := reads[operationField]; asks {
		return nil
	}
	var errs []error
	for _, field := range absentInAudits {
		if location, read := reads[field]; read {
			errs = append(errs, fmt.Errorf("%s: input.%s is absent when a stored export is evaluated again (an audit), so a rule that needs it would withdraw "+
				"what it has admitted, and no rule reads input.operation; expected input.operation != \"AUDIT\" in the rules that are for requests only",
				place(location), field))
		}
	}
	return joinUnique(errs)
}

// reachable are the rules of the module without its tests, in order, and the rules
// of the library that they use.
func reachable(compiler *ast.Compiler, v *version) (rules []*ast.Rule) {
	seen := map[util.T]bool{}
	var visit func(util.T)
	visit = func(node util.T) {
		rule, ok := node.(*ast.Rule)
		if !ok || seen[node] {
			return
		}
		seen[node] = true
		rules = append(rules, rule)
		for dependency := range compiler.Graph.Dependencies(node) {
			visit(dependency)
		}
	}
	for _, rule := range compiler.Modules[v.file()].Rules {
		if !strings.HasPrefix(rule.Head.Ref()[0].Value.String(), testPrefix) {
			visit(rule)
		}
	}
	return rules
}

// inputFields are the fields of input that the rules read, and where first. If they
// use input as a whole, as in object.get(input, "userInfo", {}), every string in them
// counts as the name of a field.
func inputFields(rules []*ast.Rule) map[string]*ast.Location {
	reads := map[string]*ast.Location{}
	whole := false
	add := func(rule *ast.Rule, term *ast.Term) bool {
		name, named := term.Value.(ast.String)
		if _, has := reads[string(name)]; !named || has {
			return named
		}
		reads[string(name)] = rule.Location
		if term.Location != nil && term.Location.Row > 0 {
			reads[string(name)] = term.Location
		}
		return true
	}
	for _, rule := range rules {
		ast.WalkRefs(rule, func(ref ast.Ref) bool {
			if ref.HasPrefix(ast.InputRootRef) && (len(ref) == 1 || !add(rule, ref[1])) {
				whole = true
			}
			return false
		})
	}
	for i := 0; whole && i < len(rules); i++ {
		ast.WalkTerms(rules[i], func(term *ast.Term) bool {
			add(rules[i], term)
			return false
		})
	}
	return reads
}
