// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// removed are the builtins that a policy may not call, with why, and what to use instead: those
// that use the network or differ from one call to the next, so that all replicas give the same
// answer every time, and those that cannot be stopped.
var removed = []struct {
	why, instead string
	builtins     []string
}{
	{"it uses the network", "what it would read in spec.parameters, and net.cidr_contains", []string{"http.send", "net.lookup_ip_addr"}},
	{"its answer differs from one call, or replica, to the next", "a rule that decides by input and spec.parameters alone, or spec.exceptions, which end with a day", []string{
		"opa.runtime", "rand.intn", "uuid.rfc4122", "time.now_ns",
	}},
	{"its answer depends on the time, or on chance", "io.jwt.decode and io.jwt.verify_es256, or crypto.x509.parse_certificates", []string{
		"io.jwt.encode_sign", "io.jwt.encode_sign_raw", "io.jwt.decode_verify",
		"crypto.x509.parse_and_verify_certificates", "crypto.x509.parse_and_verify_certificates_with_options",
	}},
	{"no deadline interrupts it", "sprintf, graph.reachable, a multiplication, or data in spec.parameters", []string{
		"strings.render_template", "graph.reachable_paths", "bits.lsh", "rego.parse_module",
	}},
	{"a schema may refer to another by URL", "spec.parametersSchema for parameters, and rules for input", []string{"json.match_schema", "json.verify_schema"}},
}

// whyRemoved says why a policy may not call a builtin, and what to use instead; empty if it may.
func whyRemoved(name string) string {
	for _, alike := range removed {
		if slices.Contains(alike.builtins, name) {
			return fmt.Sprintf(": policies may not call it, since %s; expected %s", alike.why, alike.instead)
		}
	}
	return ""
}

// Capabilities are those of this OPA without the builtins that are removed. A policy that calls
// one does not compile. Their JSON is what `opa check --capabilities` and `opa eval --capabilities`
// read.
func Capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool {
		return whyRemoved(b.Name) != "" || b.IsNondeterministic() // as another version of OPA may say of more
	})
	// Not nil, which would allow every host.
	c.AllowNet = []string{}
	return c
}
