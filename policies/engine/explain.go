// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// maxExplained bounds how many lines an explanation has.
const maxExplained = 10_000

// Explain gives a context: an evaluation with it is traced. The lines, which may be read
// once the evaluation returned, are the rules that held and the expressions that did not,
// in the order of the evaluation, with their places and the values of their variables.
// Rules are then evaluated without index, one by one, which is slower. One explanation is
// for one evaluation.
func Explain(ctx context.Context) (context.Context, func() []string) {
	e := &explainer{seen: map[string]bool{}}
	return context.WithValue(ctx, explainKey{}, e), func() []string { return e.lines }
}

// explainer is OPA's tracer.
type explainer struct {
	lines []string
	seen  map[string]bool
}

// Enabled implements topdown.QueryTracer.
func (*explainer) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (*explainer) Config() topdown.TraceConfig { return topdown.TraceConfig{PlugLocalVars: true} }

// TraceEvent implements topdown.QueryTracer.
func (e *explainer) TraceEvent(event topdown.Event) {
	if line := explained(event); line != "" && !e.seen[line] && len(e.lines) < maxExplained {
		e.seen[line] = true
		e.lines = append(e.lines, line)
	}
}

// explained is the line of an event; empty for one that explains nothing.
func explained(event topdown.Event) string {
	if event.Location == nil {
		return ""
	}
	text := ""
	switch node := event.Node.(type) {
	case *ast.Rule:
		if event.Op != topdown.ExitOp {
			return ""
		}
		text = node.Head.Ref()[0].String()
		switch {
		case node.Head.Key != nil:
			text += " contains " + event.Plug(node.Head.Key).String()
		case node.Head.Value != nil:
			text += " is " + event.Plug(node.Head.Value).String()
		}
	case *ast.Expr:
		if event.Op != topdown.FailOp {
			return ""
		}
		text = "not true: " + strings.Join(strings.Fields(string(event.Location.Text)), " ")
	default:
		return ""
	}
	var values []string
	for variable, metadata := range event.LocalMetadata {
		if value := event.Locals.Get(variable); value != nil && value.IsGround() && !metadata.Name.IsGenerated() && !metadata.Name.IsWildcard() {
			values = append(values, fmt.Sprintf("%s = %s", metadata.Name, value))
		}
	}
	if len(values) > 0 {
		slices.Sort(values)
		text += "; with " + strings.Join(values, ", ")
	}
	return Renamed(fmt.Sprintf("%s:%d: %s", event.Location.File, event.Location.Row, text))
}

type explainKey struct{}

// explaining has a query traced, if its context says so.
func explaining(ctx context.Context, query *topdown.Query) {
	if tracer, ok := ctx.Value(explainKey{}).(*explainer); ok {
		query.WithQueryTracer(tracer).WithIndexing(false).WithEarlyExit(false)
	}
}
