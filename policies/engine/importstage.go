// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// stages are what a policy can decide on.
func stages() []v1alpha1.Stage {
	return []v1alpha1.Stage{v1alpha1.StageExport, v1alpha1.StageImport}
}

// inputOf is the type of input at a stage.
func inputOf(stage v1alpha1.Stage) reflect.Type {
	if stage == v1alpha1.StageImport {
		return reflect.TypeFor[decision.ImportInput]()
	}
	return reflect.TypeFor[decision.Input]()
}

// fieldsOf are the fields of input at a stage, sorted.
func fieldsOf(stage v1alpha1.Stage) []string {
	properties := map[string]any{}
	addProperties(inputOf(stage), properties)
	return sortedKeys(properties)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (v *version) readStage() error {
	switch v.stage {
	case "":
		v.stage = v1alpha1.StageExport
	case v1alpha1.StageExport:
	case v1alpha1.StageImport:
		v.grace = 0 // what is denied is not imported
	default:
		given := v.stage
		v.stage = ""
		return fmt.Errorf("spec.stage: %q is neither Export nor Import", given)
	}
	return nil
}

// isOf reports whether the policy counts at a stage: one of which the stage is not
// known counts at every one.
func (v *version) isOf(stage v1alpha1.Stage) bool { return v.stage == "" || v.stage == stage }

// addStage adds to the errors on fields of input that another stage has what this one
// has: most likely the policy lacks spec.stage, or its author read the other table.
func addStage(stage v1alpha1.Stage, errs ast.Errors) {
	fields := fieldsOf(stage)
	for _, err := range errs {
		rest, is := strings.CutPrefix(err.Message, "undefined ref: input.")
		if !is {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		name, _, _ = strings.Cut(name, "[")
		for _, other := range stages() {
			if other != stage && !slices.Contains(fields, name) && slices.Contains(fieldsOf(other), name) {
				err.Message += fmt.Sprintf("; a policy with stage %s can read input.%s; input.%s is for policies with stage %s",
					stage, strings.Join(fields, ", input."), name, other)
			}
		}
	}
}

// libraryOf is the library without the rules that read what input does not have at
// the stage, themselves or through others. What no stage has is left for the compiler
// to refuse.
func libraryOf(stage v1alpha1.Stage, whole map[string]*ast.Module) map[string]*ast.Module {
	foreign := map[string]bool{}
	for _, other := range stages() {
		for _, field := range fieldsOf(other) {
			foreign[field] = true
		}
	}
	for _, field := range fieldsOf(stage) {
		delete(foreign, field)
	}
	left := map[string]bool{} // names of rules that are left out
	for again := true; again; {
		again = false
		for _, module := range whole {
			for _, rule := range module.Rules {
				if name := ruleName(rule); !left[name] && (readsOne(rule, foreign) || usesOne(rule, left)) {
					left[name], again = true, true
				}
			}
		}
	}
	out := map[string]*ast.Module{}
	for file, module := range whole {
		kept := module.Copy()
		kept.Rules = slices.DeleteFunc(kept.Rules, func(rule *ast.Rule) bool { return left[ruleName(rule)] })
		out[file] = kept
	}
	return out
}

// checkLibrary refuses a library with a rule that no stage can use.
func checkLibrary(whole map[string]*ast.Module, of map[v1alpha1.Stage]map[string]*ast.Module) error {
	for _, file := range sortedKeys(whole) {
		for _, rule := range whole[file].Rules {
			usable := slices.ContainsFunc(stages(), func(stage v1alpha1.Stage) bool {
				return slices.ContainsFunc(of[stage][file].Rules, func(kept *ast.Rule) bool { return ruleName(kept) == ruleName(rule) })
			})
			if !usable {
				return fmt.Errorf("%s: rule %s reads fields of input that no stage has together", place(rule.Location), ruleName(rule))
			}
		}
	}
	return nil
}

// ruleName is the name of a rule in its package. The library has names without dots.
func ruleName(rule *ast.Rule) string { return rule.Head.Ref()[0].Value.String() }

func readsOne(rule *ast.Rule, fields map[string]bool) (reads bool) {
	ast.WalkRefs(rule, func(ref ast.Ref) bool {
		if ref.HasPrefix(ast.InputRootRef) && len(ref) > 1 {
			name, _ := ref[1].Value.(ast.String)
			reads = reads || fields[string(name)]
		}
		return false
	})
	return reads
}

// usesOne reports whether the rule, which was not compiled, uses one of these rules of
// the library, by its name or by its path.
func usesOne(rule *ast.Rule, names map[string]bool) (uses bool) {
	ast.WalkVars(rule, func(v ast.Var) bool {
		uses = uses || names[string(v)] && string(v) != ruleName(rule)
		return false
	})
	library := mustPath(libraryPath)
	ast.WalkRefs(rule, func(ref ast.Ref) bool {
		if ref.HasPrefix(library) && len(ref) > len(library) {
			name, _ := ref[len(library)].Value.(ast.String)
			uses = uses || names[string(name)]
		}
		return false
	})
	return uses
}

// inputPaths are the fields of input that the rules read, with the fields of these:
// "export.ports" and "export", say. What is used as a whole, or by a key that is not
// known before the evaluation, is "export.*"; all of input is "*".
func inputPaths(rules []*ast.Rule) map[string]bool {
	paths := map[string]bool{}
	for _, rule := range rules {
		ast.WalkRefs(rule, func(ref ast.Ref) bool {
			if !ref.HasPrefix(ast.InputRootRef) {
				return false
			}
			first, named := element(ref, 1)
			if !named {
				paths["*"] = true
				return false
			}
			second, _ := element(ref, 2)
			paths[first+"."+second] = true
			return false
		})
	}
	return paths
}

// element is the name at a position of a reference; "*" and false if there is none.
func element(ref ast.Ref, at int) (string, bool) {
	if len(ref) > at {
		if name, is := ref[at].Value.(ast.String); is {
			return string(name), true
		}
	}
	return "*", false
}
