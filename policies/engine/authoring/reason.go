// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package authoring

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/comity-mcs/comity/policies/engine"
)

// reason says which expression of a test does not hold, and with which values: the
// last one that failed in the file of the test.
func reason(r *tester.Result) string {
	for _, event := range slices.Backward(r.Trace) {
		expression, is := event.Node.(*ast.Expr)
		if event.Op != topdown.FailOp || !is || event.Location == nil || r.Location == nil || event.Location.File != r.Location.File {
			continue
		}
		if _, every := expression.Terms.(*ast.Every); every {
			continue // what failed is inside
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s:%d does not hold:\n", event.Location.File, event.Location.Row)
		if err := topdown.PrettyEvent(&b, event, topdown.PrettyEventOpts{PrettyVars: true}); err != nil {
			b.WriteString(string(event.Location.Text))
		}
		return engine.Renamed(strings.TrimSpace(b.String()))
	}
	return ""
}
