// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/policies"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/webhook/facts"
)

// Other engines decide on the same input, in the same webhook, by the same rules.

// gatekeeper evaluates policies as Gatekeeper does: one compiler for all, and for each
// request and constraint a query of its own.
type gatekeeper struct {
	compiler *ast.Compiler
	store    storage.Store
	queries  []string
}

// Gatekeeper evaluates the policies that Comity ships as Gatekeeper does: with one
// compiler, and rego.New for each constraint of each request.
func Gatekeeper() (facts.Evaluator, error) {
	found, err := baselines()
	if err != nil {
		return nil, err
	}
	modules := policies.Library()
	params := map[string]any{}
	g := gatekeeper{}
	for _, b := range found {
		modules[b.Name()] = b.Object.Spec.Rego
		pkg := strings.ReplaceAll(b.Name(), "-", "_")
		g.queries = append(g.queries, "data.comity.policies."+pkg+".deny")
		var values any
		if params := b.Object.Spec.Parameters; params != nil {
			if err := yaml.Unmarshal(params.Raw, &values); err != nil {
				return nil, fmt.Errorf("parameters of policy %s: %w", b.Name(), err)
			}
		}
		params[pkg] = values
	}
	if g.compiler, err = ast.CompileModules(modules); err != nil {
		return nil, err
	}
	g.store = inmem.NewFromObject(map[string]any{"comity": map[string]any{"params": params}})
	return g, nil
}

// Evaluate implements facts.Evaluator.
func (g gatekeeper) Evaluate(ctx context.Context, in decision.Input) decision.Verdict {
	text, err := textOf(in)
	if err != nil {
		return decision.Verdict{Problem: err.Error()}
	}
	input, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		return decision.Verdict{Problem: err.Error()}
	}
	verdict := decision.Verdict{Outcome: decision.Allowed}
	for _, query := range g.queries {
		results, err := rego.New(rego.Query(query), rego.Compiler(g.compiler), rego.Store(g.store), rego.ParsedInput(input)).Eval(ctx)
		if err != nil {
			return decision.Verdict{Problem: err.Error()}
		}
		for _, result := range results {
			if found, ok := result.Expressions[0].Value.([]any); !ok || len(found) > 0 {
				verdict.Outcome = decision.Denied
			}
		}
	}
	return verdict
}

// textOf is the JSON of an input. Rules expect a list of clusters also where there are none.
func textOf(in decision.Input) ([]byte, error) {
	for _, scope := range []*decision.Scope{&in.Scope, &in.NamespaceScope, &in.EffectiveScope} {
		if scope.Clusters == nil {
			scope.Clusters = []string{}
		}
	}
	in.Object = decision.AsWritten(in.Object)
	return json.Marshal(in)
}

// rules are those of the policies that Comity ships, in CEL: each is true for an
// export that it allows.
var rules = []string{
	`service == null || service.spec.type != "ExternalName"`,
	`!has(scope.problem)`,
	`!has(namespaceScope.problem)`,
	`!(cluster in scope.clusters)`,
	`scope.clusters.all(id, id in peers)`,
	`scope.clusters.all(id, namespaceScope.all || id in namespaceScope.clusters)`,
	`peers.all(id, !(effectiveScope.all || id in effectiveScope.clusters) || peers[id]["namespace"].presence != "present" || keys.all(key,
		(key in ns.metadata.labels ? ns.metadata.labels[key] : "") == (key in peers[id]["namespace"].labels ? peers[id]["namespace"].labels[key] : "")))`,
}

// precompiled evaluates rules in CEL that were compiled before.
type precompiled struct{ programs []cel.Program }

// CEL evaluates the rules of the policies that Comity ships, written in CEL and
// compiled before.
func CEL() (facts.Evaluator, error) {
	var names []cel.EnvOption
	for _, name := range []string{"service", "ns", "cluster", "scope", "namespaceScope", "effectiveScope", "peers", "keys"} {
		names = append(names, cel.Variable(name, cel.DynType))
	}
	env, err := cel.NewEnv(names...)
	if err != nil {
		return nil, err
	}
	var p precompiled
	for _, rule := range rules {
		checked, issues := env.Compile(rule)
		if issues.Err() != nil {
			return nil, issues.Err()
		}
		program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize))
		if err != nil {
			return nil, err
		}
		p.programs = append(p.programs, program)
	}
	return p, nil
}

// Evaluate implements facts.Evaluator.
func (p precompiled) Evaluate(ctx context.Context, in decision.Input) decision.Verdict {
	text, err := textOf(in)
	if err != nil {
		return decision.Verdict{Problem: err.Error()}
	}
	var input map[string]any
	if err := json.Unmarshal(text, &input); err != nil {
		return decision.Verdict{Problem: err.Error()}
	}
	// CEL reserves the word namespace.
	input["ns"], input["keys"] = input["namespace"], []string{identity}
	verdict := decision.Verdict{Outcome: decision.Allowed}
	for _, program := range p.programs {
		result, _, err := program.ContextEval(ctx, input)
		if err != nil {
			return decision.Verdict{Problem: err.Error()}
		}
		if result.Value() != true {
			verdict.Outcome = decision.Denied
		}
	}
	return verdict
}
