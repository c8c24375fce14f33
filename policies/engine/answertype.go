// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// The keys of an entry of deny or warn; all are strings but keyClusters, which is a list
// of them.
const (
	keyMsg      = "msg"
	keyField    = "field"
	keyRemedy   = "remedy"
	keyClusters = "clusters"
)

// What an entry has to be, by stage: an import has one source, so that no entry about it
// can be limited to clusters.
const (
	expectedEntry       = `expected objects {"msg": ..., "field": ..., "remedy": ..., "clusters": [...]}, with strings`
	expectedImportEntry = `expected objects {"msg": ..., "field": ..., "remedy": ...}, with strings: an entry of a policy with stage Import is about its source alone`
)

// entryWithClusters is what is wrong with an entry of a policy with stage Import.
const entryWithClusters = "an object with clusters"

func (v *version) expectedEntry() string {
	if v.stage == v1alpha1.StageImport {
		return expectedImportEntry
	}
	return expectedEntry
}

// checkAnswer refuses a module whose answer has another form than INPUT.md says, as
// far as the type checker of OPA knows: such a policy would fail for every export.
// What it cannot know, such as the type of a label's value, is checked when the
// policy is evaluated.
func checkAnswer(compiler *ast.Compiler, v *version) error {
	var errs []error
	for _, name := range []string{denySet, warnSet} {
		if !v.sets[name] {
			continue
		}
		entries, ok := compiler.TypeEnv.GetByRef(mustPath(packagePrefix + v.pkg + "." + name)).(*types.Set)
		if !ok {
			continue // answerSets has checked that it is a set
		}
		if problem := v.wrongEntry(entries.Of()); problem != "" {
			errs = append(errs, fmt.Errorf("%s: %s contains %s; %s", place(entryLocation(compiler, v, name)), name, problem, v.expectedEntry()))
		}
	}
	return joinUnique(errs)
}

// wrongEntry describes what is wrong with entries of a type; empty if nothing is
// known to be.
func (v *version) wrongEntry(t types.Type) string {
	switch t := t.(type) {
	case nil:
		return ""
	case *types.NamedType:
		return v.wrongEntry(t.Type)
	case types.Any: // one of several types, or of unknown type if there are none
		for _, one := range t {
			if problem := v.wrongEntry(one); problem != "" {
				return problem
			}
		}
		return ""
	case *types.Object:
		for _, key := range []string{keyMsg, keyField, keyRemedy} {
			value := t.Select(key)
			if value == nil && key == keyMsg {
				return "an object without msg"
			}
			if value != nil && !mayBeString(value) {
				return fmt.Sprintf("an object whose %s is of type %s", key, types.Sprint(value))
			}
		}
		switch value := t.Select(keyClusters); {
		case value == nil:
			return ""
		case v.stage != v1alpha1.StageImport:
			return wrongClusters(value)
		case slices.ContainsFunc(t.StaticProperties(), func(p *types.StaticProperty) bool { return p.Key == keyClusters }):
			return entryWithClusters
		}
		return "" // it may have the key
	default:
		return "what is of type " + types.Sprint(t)
	}
}

// mayBeString reports whether every value of the type is a string, or is of a type
// that is not known.
func mayBeString(t types.Type) bool {
	switch t := t.(type) {
	case *types.NamedType:
		return mayBeString(t.Type)
	case types.String:
		return true
	case types.Any:
		for _, one := range t {
			if !mayBeString(one) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// entryLocation is where the wrong entry is: at the first rule of the name whose
// entry is known to be wrong, else at the first rule of the name. The type checker
// does not keep the types of a rule's own variables.
func entryLocation(compiler *ast.Compiler, v *version, name string) (location *ast.Location) {
	for _, rule := range compiler.Modules[v.file()].Rules {
		switch {
		case rule.Head.Ref()[0].Value.String() != name:
		case rule.Head.Key != nil && rule.Head.Key.IsGround() && v.wrongEntry(compiler.TypeEnv.GetByValue(rule.Head.Key.Value)) != "":
			return rule.Location
		case location == nil:
			location = rule.Location
		}
	}
	return location
}
