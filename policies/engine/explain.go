// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// maxExplained bounds how many rules of one policy an Explanation has.
const maxExplained = 1000

// Explanation says which rules of which policies led to a verdict.
type Explanation struct {
	// Rules are those that held at least once, by policy; those of the library are
	// listed with each policy that used them. They are in the order of file and row.
	Rules map[string][]Rule
}

// Rule is one rule that held, with the values with which it did. A rule that held with
// other values is another one.
type Rule struct {
	// Place is file:row; the file is <policy>.rego, or one of the library's.
	Place string
	// Name is the rule's, without its package.
	Name string
	// Decides is true for a rule of deny or warn.
	Decides bool
	// Entry is true for a rule that adds to a set, or to an object.
	Entry bool
	// Value is the entry, or the value of another rule; empty if that is true.
	Value string
	// Bindings are the values that the rule used: of its variables, and of what it reads of
	// input and parameters; sorted by name.
	Bindings []Binding

	file string
	row  int
}

// Binding is one value that a rule used, as Rego writes it.
type Binding struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Explain gives a context: an evaluation with it fills in the explanation, which may
// be read once the evaluation returned. Rules are then evaluated without index, one
// by one, which is slower. One explanation is for one evaluation.
func Explain(ctx context.Context) (context.Context, func() Explanation) {
	e := &explainer{rules: map[string]map[string]Rule{}}
	return context.WithValue(ctx, explainKey{}, e), e.explanation
}

type explainKey struct{}

// explaining are the options of an evaluation that is to be explained; none otherwise.
func explaining(ctx context.Context, at *progress) []rego.EvalOption {
	e, ok := ctx.Value(explainKey{}).(*explainer)
	if !ok {
		return nil
	}
	e.at = at
	return []rego.EvalOption{rego.EvalQueryTracer(e), rego.EvalRuleIndexing(false), rego.EvalEarlyExit(false)}
}

// explainer collects rules while they are evaluated.
type explainer struct {
	at *progress

	mu    sync.Mutex
	rules map[string]map[string]Rule // by policy and by all that a Rule has
}

// Enabled implements topdown.QueryTracer.
func (e *explainer) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (e *explainer) Config() topdown.TraceConfig { return topdown.TraceConfig{PlugLocalVars: true} }

// TraceEvent implements topdown.QueryTracer.
func (e *explainer) TraceEvent(event topdown.Event) {
	rule, isRule := event.Node.(*ast.Rule)
	policy := e.at.current.Load()
	if !isRule || event.Op != topdown.ExitOp || policy == nil || rule.Location == nil || rule.Location.File == answersFile {
		return
	}
	found := e.describe(event, rule, policy)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rules[policy.name] == nil {
		e.rules[policy.name] = map[string]Rule{}
	}
	if len(e.rules[policy.name]) < maxExplained {
		e.rules[policy.name][found.identity()] = found
	}
}

func (e *explainer) explanation() Explanation {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := Explanation{Rules: map[string][]Rule{}}
	for policy, rules := range e.rules {
		// The policy's own rules first, then those of the library.
		foreign := func(r Rule) int {
			if strings.HasPrefix(r.Place, policy+".rego:") {
				return 0
			}
			return 1
		}
		out.Rules[policy] = slices.SortedFunc(maps.Values(rules), func(a, b Rule) int {
			return cmp.Or(
				cmp.Compare(foreign(a), foreign(b)),
				cmp.Compare(a.file, b.file), cmp.Compare(a.row, b.row), cmp.Compare(a.identity(), b.identity()),
			)
		})
	}
	return out
}

func (r Rule) identity() string {
	parts := []string{r.Place, r.Name, r.Value}
	for _, b := range r.Bindings {
		parts = append(parts, b.Name, b.Value)
	}
	return sum(parts...)
}

func (e *explainer) describe(event topdown.Event, rule *ast.Rule, policy *version) Rule {
	name := rule.Head.Ref()[0].Value.String()
	found := Rule{
		Place: fmt.Sprintf("%s:%d", rule.Location.File, rule.Location.Row),
		Name:  name, Decides: rule.Location.File == policy.file() && (name == denySet || name == warnSet),
		file: rule.Location.File, row: rule.Location.Row,
	}
	head := rule.Head.Value
	if rule.Head.Key != nil {
		head, found.Entry = rule.Head.Key, true
	}
	if head != nil {
		if value := event.Plug(head); !value.Equal(ast.InternedTerm(true)) {
			found.Value = value.String()
		}
	}
	bindings := map[string]string{}
	for variable, metadata := range event.LocalMetadata {
		if value := event.Locals.Get(variable); value != nil && isNamed(metadata.Name) && value.IsGround() {
			bindings[string(metadata.Name)] = value.String()
		}
	}
	ast.WalkRefs(rule, func(ref ast.Ref) bool {
		if read, value := e.read(event, ref, policy); value != nil {
			bindings[read] = value.String()
		}
		return false
	})
	for name, value := range bindings {
		found.Bindings = append(found.Bindings, Binding{Name: name, Value: value})
	}
	slices.SortFunc(found.Bindings, func(a, b Binding) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// read is what a rule reads of input or of its parameters; nil for any other
// reference, and for what is not there.
func (e *explainer) read(event topdown.Event, ref ast.Ref, policy *version) (string, ast.Value) {
	plugged, ok := event.Plug(ast.NewTerm(ref)).Value.(ast.Ref)
	if !ok || !plugged.IsGround() || len(plugged) < 2 {
		return "", nil
	}
	var value ast.Value
	var err error
	switch params := mustPath(paramsPath + "." + policy.pkg); {
	case plugged.HasPrefix(ast.InputRootRef) && event.Input() != nil:
		value, err = event.Input().Value.Find(plugged[1:])
	case plugged.HasPrefix(params):
		var all ast.Value
		if all, err = ast.InterfaceToValue(policy.params); err == nil {
			value, err = all.Find(plugged[len(params):])
		}
	default:
		return "", nil
	}
	if err != nil {
		return "", nil
	}
	return plugged.String(), value
}

// isNamed is false for the variables that the compiler made.
func isNamed(variable ast.Var) bool {
	return variable != "" && !variable.IsGenerated() && !variable.IsWildcard()
}
