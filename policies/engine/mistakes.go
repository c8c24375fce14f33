// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies/decision"
)

// checkNames refuses a rule with the name of a builtin or of an import, which it hides: it compiles,
// and cannot be meant.
func checkNames(module *ast.Module) (errs []error) {
	hidden := map[string]string{}
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		hidden[b.Name] = "the builtin"
	}
	for _, i := range module.Imports {
		hidden[strings.Trim(i.Name().String(), `"`)] = "the import"
	}
	for _, rule := range module.Rules {
		name := rule.Head.Ref()[0].Value.String()
		if what := hidden[name]; what != "" {
			errs = append(errs, fmt.Errorf("%s: rule %s hides %s of that name; expected another name", place(rule.Location), name, what))
		}
	}
	return errs
}

// verb is one of a format; %% is none. With a * or an index, how many values there are to be
// depends on them.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9]*(?:\.[0-9]*)?([^-+# 0-9.])`)

// checkSprintf refuses a call of sprintf with more or fewer values than its format has verbs, if both
// are written out.
func checkSprintf(call *ast.Expr) error {
	if call.Operator().String() != ast.Sprintf.Name {
		return nil
	}
	format, isText := call.Operand(0).Value.(ast.String)
	values, isArray := call.Operand(1).Value.(*ast.Array)
	if !isText || !isArray {
		return nil
	}
	verbs := 0
	for _, found := range verb.FindAllStringSubmatch(string(format), -1) {
		switch found[1] {
		case "*", "[":
			return nil
		case "%":
		default:
			verbs++
		}
	}
	if verbs == values.Len() {
		return nil
	}
	return fmt.Errorf("%s: sprintf has %d values for a format with %d verbs; expected one value for each", place(call.Location), values.Len(), verbs)
}

// undefined finds the function in an error of OPA's compiler, internal a name that it made.
var (
	undefined = regexp.MustCompile(`undefined function ([a-z0-9_.]+)$`)
	internal  = regexp.MustCompile(`__local[0-9]+__|__local_[a-z]+_[0-9]+__`)
)

// remedies are what OPA's compiler does not say, by a part of what it says.
var remedies = []struct{ message, remedy string }{
	{"undefined function", "a builtin in policies/capabilities.json, or a function of the module: is it misspelled?"},
	{"is unsafe", "it to get a value in the same body, or a rule of that name: is it misspelled?"},
	{"is recursive", "rules that do not use themselves"},
	{"match error", "both sides to be of one type"},
	{"keyword is required", "Rego v1: " + usualRule},
	{"package expected", "package " + packagePrefix + "<name>"},
	{" unused", "it to be used, or removed"},
}

// worded is an error of OPA in one line with its place and details.
func worded(e *ast.Error) string {
	line, at := e.Message, e.Location
	if found := undefined.FindStringSubmatch(line); found != nil {
		if b, is := removed[found[1]]; is {
			line += fmt.Sprintf(": policies may not call it, since %s; expected %s", b.why, b.instead)
		}
	}
	for _, known := range remedies {
		if strings.Contains(e.Message, known.message) && line == e.Message {
			line += "; expected " + known.remedy
		}
	}
	switch d := e.Details.(type) {
	case *ast.RefErrInvalidDetail:
		at = placeOf(d.Ref[:d.Pos+1], at)
	case *ast.RefErrUnsupportedDetail:
		at = placeOf(d.Ref[:d.Pos+1], at)
	}
	if e.Details != nil {
		for _, detail := range e.Details.Lines() {
			detail = strings.Join(strings.Fields(detail), " ")
			if strings.Trim(detail, "^ ") != "" && !strings.HasSuffix(line, detail) { // the place, marked, or the reference again
				line += "; " + detail
			}
		}
	}
	if at != nil {
		line = place(at) + ": " + line
	}
	return line
}

// Renamed is a message without the names that OPA's compiler gave to what has none, and cut: it may
// repeat what a builtin was given.
func Renamed(message string) string {
	return decision.Shown(internal.ReplaceAllString(message, "a value"), maxText)
}
