// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies/decision"
)

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
	{"undefined ref: input.", "a field that policies of this stage have: see spec.stage, and policies/INPUT.md"},
}

// worded is an error of OPA in one line with its place and details.
func worded(e *ast.Error) string {
	line, at, remedy := e.Message, e.Location, ""
	for _, known := range remedies {
		if strings.Contains(line, known.message) {
			remedy = "; expected " + known.remedy
		}
	}
	if found := undefined.FindStringSubmatch(line); found != nil {
		remedy = cmp.Or(whyRemoved(found[1]), remedy)
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
	line += remedy
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
