// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/types"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// The keys of an entry of deny or warn, which has no others: "cluster" in place of
// "clusters" would limit nothing. All are strings but keyClusters, which is a list of them.
const (
	keyMsg      = "msg"
	keyField    = "field"
	keyRemedy   = "remedy"
	keyClusters = "clusters"
)

var textKeys = []string{keyMsg, keyField, keyRemedy}

// What an entry has to be, by stage: an import has one source, so that no entry about it
// can be limited to clusters.
const (
	usualRule           = "deny contains " + usualEntry + " if { ... }"
	usualEntry          = `{"msg": ..., "field": ..., "remedy": ...}`
	expectedEntry       = `expected objects {"msg": ..., "field": ..., "remedy": ..., "clusters": [...]}, with strings`
	expectedImportEntry = "expected objects " + usualEntry + `, with strings: an entry of a policy with stage Import is about its source alone`
)

func (v *version) expectedEntry() string {
	if v.Stage == v1alpha1.StageImport {
		return expectedImportEntry
	}
	return expectedEntry
}

// wrongKey describes an entry with a key that entries do not have; empty if they have it.
func (v *version) wrongKey(key string) string {
	if slices.Contains(textKeys, key) || key == keyClusters && v.Stage != v1alpha1.StageImport {
		return ""
	}
	return "an object with " + strings.Trim(strconv.Quote(key), `"`)
}

// checkAnswer refuses a module whose answer has another form than INPUT.md says, as
// far as the type checker of OPA knows: such a policy would fail for every export.
// What it cannot know, such as the type of a label's value, is checked when the
// policy is evaluated.
//
// The type checker does not keep the types of a rule's own variables: of a rule whose entry has
// some, those of all rules of its name are checked.
func (c checking) checkAnswer() (errs []error) {
	for _, rule := range c.Modules[c.file()].Rules {
		name, key := rule.Head.Ref()[0].Value.String(), rule.Head.Key
		if name != denySet && name != warnSet {
			continue
		}
		t := types.Values(c.TypeEnv.GetByRef(rule.Ref()))
		if key.IsGround() {
			t = c.TypeEnv.GetByValue(key.Value)
		}
		if problem := c.wrongEntry(t); problem != "" {
			errs = append(errs, fmt.Errorf("%s: %s contains %s; %s", place(rule.Location), name, problem, c.expectedEntry()))
		}
	}
	return errs
}

// wrongEntry describes what is wrong with entries of a type; empty if nothing is
// known to be. What is of a type that is not known may have other keys.
func (v *version) wrongEntry(t types.Type) string {
	for _, one := range alternatives(t) {
		object, is := one.(*types.Object)
		switch {
		case !is:
			return "what is of type " + types.Sprint(one)
		case object.Select(keyMsg) == nil:
			return "an object without msg"
		}
		for _, property := range object.StaticProperties() {
			key, isOf := fmt.Sprint(property.Key), isString
			if key == keyClusters {
				isOf = isClusters
			}
			if problem := v.wrongKey(key); problem != "" {
				return problem
			}
			if !all(property.Value, isOf) {
				return fmt.Sprintf("an object whose %s is of type %s", key, types.Sprint(property.Value))
			}
		}
	}
	return ""
}

func isString(t types.Type) bool { _, is := t.(types.String); return is }

// isClusters is false for the empty list, which has no type of values.
func isClusters(t types.Type) bool {
	_, is := t.(*types.Array)
	values := types.Values(t)
	return is && values != nil && all(values, isString)
}

// all reports whether every type that a value of the type may have is so, as far as that is known.
func all(t types.Type, is func(types.Type) bool) bool {
	return !slices.ContainsFunc(alternatives(t), func(one types.Type) bool { return !is(one) })
}

// alternatives are the types that a value of the type may have; none if that is not known.
func alternatives(t types.Type) (all []types.Type) {
	switch t := t.(type) {
	case nil:
	case *types.NamedType:
		return alternatives(t.Type)
	case types.Any:
		for _, one := range t {
			all = append(all, alternatives(one)...)
		}
	default:
		return []types.Type{t}
	}
	return all
}
