// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// operationField says whether there is a request at all.
const operationField = "operation"

// absentInAudits are the fields of input that only a request has.
var absentInAudits = []string{"userInfo", "oldObject"}

// checkAudit refuses a module that reads what only a request has, and nowhere asks
// whether there is one. It would admit a request because of who makes it, say, and
// withdraw the export a moment later, when it is evaluated again without a user.
// Reading the operation in any rule is enough, also by way of the library.
func checkAudit(v *version, rules []*ast.Rule) error {
	fields := map[string]*ast.Location{}
	for path, location := range v.reads {
		name, _, _ := strings.Cut(path, ".")
		if before := fields[name]; before == nil || location.Compare(before) < 0 {
			fields[name] = location
		}
	}
	if _, whole := v.reads[anyField]; whole {
		addStrings(fields, rules)
	}
	if fields[operationField] != nil {
		return nil
	}
	var errs []error
	for _, field := range absentInAudits {
		if location := fields[field]; location != nil {
			errs = append(errs, fmt.Errorf("%s: input.%s is absent when a stored export is evaluated again (an audit), so a rule that needs it would withdraw "+
				"what it has admitted, and no rule reads input.operation; expected input.operation != \"AUDIT\" in the rules that are for requests only",
				place(location), field))
		}
	}
	return errors.Join(errs...)
}

// addStrings adds every string in the rules: where they use input as a whole, as in
// object.get(input, "userInfo", {}), each may be the name of a field.
func addStrings(fields map[string]*ast.Location, rules []*ast.Rule) {
	for _, rule := range rules {
		ast.WalkTerms(rule, func(term *ast.Term) bool {
			if name, is := term.Value.(ast.String); is && fields[string(name)] == nil {
				fields[string(name)] = cmp.Or(position(term), rule.Location)
			}
			return false
		})
	}
}
