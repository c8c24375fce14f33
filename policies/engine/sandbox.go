// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// sandbox is what a policy may call and what it may expect of input.
type sandbox struct {
	// capabilities are those of a policy; together adds what the generated
	// module needs, which no policy may call.
	capabilities *ast.Capabilities
	together     *ast.Capabilities
	// schemas are what input is, by the stage of a policy.
	schemas map[v1alpha1.Stage]*ast.SchemaSet
}

func newSandbox() sandbox {
	schemas := map[v1alpha1.Stage]*ast.SchemaSet{}
	for _, stage := range stages() {
		schemas[stage] = ast.NewSchemaSet()
		schemas[stage].Put(ast.SchemaRootRef, inputSchema(stage))
	}
	together := capabilities()
	together.Builtins = append(together.Builtins, asked)
	return sandbox{capabilities: capabilities(), together: together, schemas: schemas}
}

// forbidden are builtins that OPA does not mark as nondeterministic but that a
// webhook must not run.
var forbidden = map[string]string{
	"strings.render_template":                   "no deadline interrupts it, and a template can loop",
	"graph.reachable_paths":                     "no deadline interrupts it, and there may be exponentially many paths",
	"bits.lsh":                                  "no deadline interrupts it, and bits.lsh(1, 1e9) takes many seconds",
	"rego.parse_module":                         "it parses without bounds",
	"io.jwt.decode_verify":                      "its answer depends on the time",
	"crypto.x509.parse_and_verify_certificates": "its answer depends on the time",
	"crypto.x509.parse_and_verify_certificates_with_options": "its answer depends on the time",
	"json.match_schema":  "a schema may refer to another by URL",
	"json.verify_schema": "a schema may refer to another by URL",
}

// capabilities are those of this OPA without the builtins that use the network,
// differ from one call to the next, or cannot be stopped. A policy that calls one
// does not compile, so all replicas give the same answer every time.
func capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool {
		_, bad := forbidden[b.Name]
		return bad || b.IsNondeterministic()
	})
	// Not nil, which would allow every host.
	c.AllowNet = []string{}
	return c
}

// asked is called once per policy and evaluation, before the policy's rules. It
// records which policy runs, so that a failure can name it, and returns whether the
// policy matches this export. Only generated Rego calls it.
var asked = &ast.Builtin{
	Name:             "comity.asked",
	Decl:             types.NewFunction(types.Args(types.S), types.B),
	Nondeterministic: true,
}
