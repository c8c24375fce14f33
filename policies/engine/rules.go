// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// The names of the sets that a policy answers with.
const (
	denySet = "deny"
	warnSet = "warn"
)

// testPrefix is that of the names of tests.
const testPrefix = "test_"

// readSets makes the query of those of deny and warn that the module has, and requires that they
// are sets: a set is always defined, if empty, while `deny := ...` could be
// undefined, which would count as no objection.
func (v *version) readSets() error {
	has := map[string]bool{}
	for _, rule := range v.module.Rules {
		ref := rule.Head.Ref()
		name := ref[0].Value.String()
		if name != denySet && name != warnSet {
			continue
		}
		if len(ref) != 1 || rule.Default || len(rule.Head.Args) > 0 || rule.Head.RuleKind() != ast.MultiValue {
			return fmt.Errorf("%s: %s is no set; expected %[2]s%[3]s", place(rule.Location), name, strings.TrimPrefix(usualRule, denySet))
		}
		if !has[name] {
			v.query.Append(ast.Equality.Expr(ast.VarTerm(name), ast.NewTerm(v.module.Package.Path.Append(ast.StringTerm(name)))))
		}
		has[name] = true
	}
	if len(has) == 0 {
		return fmt.Errorf("%s: the module has neither deny nor warn, so it has no answer; expected %s",
			place(v.module.Package.Location), usualRule)
	}
	return nil
}

// checking is the check of a version whose module was compiled.
type checking struct {
	*version
	*ast.Compiler
}

// checkRules checks the compiled module, in which every reference is absolute:
//
//	a rule that neither deny nor warn uses     is usually misspelled
//	a reference to another policy's data       is undefined: each is evaluated by itself
//	a parameter that is not set                would make its rule undefined
func (c checking) checkRules() (errs []error) {
	module := c.Modules[c.file()]
	used := map[string]bool{} // the bodies of one rule count as one
	for _, rule := range c.reachable(isUsed) {
		used[rule.Ref().String()] = true
	}
	defaulted := map[string]bool{}
	for _, rule := range module.Rules {
		if rule.Default {
			defaulted[rule.Ref().String()] = true
		}
	}
	for _, rule := range module.Rules {
		name := rule.Ref().String()
		if !used[name] {
			errs = append(errs, fmt.Errorf("%s: neither deny nor warn uses rule %s; expected one of them to, or the rule to be one of them: is it misspelled?",
				place(rule.Location), rule.Head.Ref()))
		}
		ast.WalkRefs(rule, func(ref ast.Ref) bool {
			if !ref.HasPrefix(ast.DefaultRootRef) {
				return false
			}
			errs = append(errs, c.checkRef(ref, placeOf(ref, rule.Location), defaulted[name]))
			return false
		})
	}
	return errs
}

// isUsed reports whether a rule of this name needs no other one that uses it.
func isUsed(name string) bool {
	return name == denySet || name == warnSet || strings.HasPrefix(name, testPrefix)
}

// reachable are the rules of the compiled module that have such names, in order, and those that they
// use, also of the library.
func (c checking) reachable(named func(string) bool) (rules []*ast.Rule) {
	graph := ast.NewGraphTraversal(c.Graph)
	add := func(node util.T) bool {
		rules = append(rules, node.(*ast.Rule))
		return false
	}
	for _, rule := range c.Modules[c.file()].Rules {
		if named(rule.Head.Ref()[0].Value.String()) {
			util.DFS(graph, add, rule)
		}
	}
	return rules
}

// checkRef checks a reference into data. What the library does not have at this stage would be
// undefined, which counts as no objection.
func (c checking) checkRef(ref ast.Ref, location *ast.Location, defaulted bool) error {
	own, library := mustPath(paramsPath+"."+c.pkg), mustPath(libraryPath)
	switch {
	case ref.HasPrefix(c.module.Package.Path), ref.Equal(library):
		return nil
	case ref.HasPrefix(library):
		if _, named := ref[len(library)].Value.(ast.String); named && len(c.GetRulesWithPrefix(ref[:len(library)+1])) == 0 {
			return fmt.Errorf("%s: %s is not in the library of policies with stage %s", place(location), ref, c.Stage)
		}
		return nil
	case !ref.HasPrefix(own):
		return fmt.Errorf("%s: %s is not this policy's to read; expected data.%s, data.%s or the policy's own rules",
			place(location), ref, libraryPath, strings.TrimPrefix(own.String(), "data."))
	case defaulted:
		return nil
	}
	var value any = c.params
	for _, term := range ref[len(own):] {
		key, ok := term.Value.(ast.String)
		if !ok {
			return nil
		}
		object, _ := value.(map[string]any)
		if value, ok = object[string(key)]; !ok || value == nil {
			return fmt.Errorf("%s: %s is not set; expected it in spec.parameters, or a default for the rule that reads it",
				place(location), ref)
		}
	}
	return nil
}

// mustPath is data.<dotted path>; the paths are constants and identifiers.
func mustPath(dotted string) ast.Ref { return ast.MustParseRef("data." + dotted) }

// joined is one error a line, without repetitions, and the first maxErrors of them.
func joined(errs []error) error {
	var lines []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		if line := Renamed(err.Error()); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if more := len(lines) - maxErrors; more > 0 {
		lines = append(lines[:maxErrors], fmt.Sprintf("and %d more", more))
	}
	if len(lines) == 0 {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// absentInAudits are the fields of input that only a request has.
var absentInAudits = []string{"userInfo", "oldObject"}

// checkAudit refuses a module that reads what only a request has, and nowhere asks
// whether there is one. It would admit a request because of who makes it, say, and
// withdraw the export a moment later, when it is evaluated again without a user.
// Reading the operation in any rule is enough, also by way of the library.
func (v *version) checkAudit(rules []*ast.Rule) (errs []error) {
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
	if fields["operation"] != nil { // which says whether there is a request at all
		return nil
	}
	for _, field := range absentInAudits {
		if location := fields[field]; location != nil {
			errs = append(errs, fmt.Errorf("%s: input.%s is absent when a stored export is evaluated again (an audit), so a rule that needs it would withdraw "+
				"what it has admitted, and no rule reads input.operation; expected input.operation != \"AUDIT\" in the rules that are for requests only",
				place(location), field))
		}
	}
	return errs
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
