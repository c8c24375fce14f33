// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// removed are the builtins that a policy may not call, with why, and what to use instead: those
// that use the network or differ from one call to the next, so that all replicas give the same
// answer every time, and those that cannot be stopped.
var removed = map[string]struct{ why, instead string }{
	"http.send":                      {network, "what it would read in spec.parameters"},
	"net.lookup_ip_addr":             {network, "addresses in spec.parameters, and net.cidr_contains"},
	"opa.runtime":                    {"replicas differ in it", "input.cluster, or spec.parameters"},
	"rand.intn":                      {differs, "a rule that decides by input and parameters alone"},
	"uuid.rfc4122":                   {differs, "input.object.metadata.uid, or a name"},
	"time.now_ns":                    {differs, "spec.exceptions, which end with a day"},
	"io.jwt.encode_sign":             {differs, verifying},
	"io.jwt.encode_sign_raw":         {differs, verifying},
	"io.jwt.decode_verify":           {byTime, verifying},
	parseAndVerify:                   {byTime, parsing},
	parseAndVerify + "_with_options": {byTime, parsing},
	"strings.render_template":        {endless + ", and a template can loop", "sprintf, or concat"},
	"graph.reachable_paths":          {endless + ", and there may be exponentially many paths", "graph.reachable"},
	"bits.lsh":                       {endless + ", and bits.lsh(1, 1e9) takes many seconds", "a multiplication"},
	"rego.parse_module":              {"it parses without bounds", "data in spec.parameters"},
	"json.match_schema":              {byURL, schemas},
	"json.verify_schema":             {byURL, schemas},
}

const (
	network = "it uses the network"
	differs = "its answer differs from one call to the next"
	byTime  = "its answer depends on the time"
	endless = "no deadline interrupts it"
	byURL   = "a schema may refer to another by URL"

	verifying = "io.jwt.decode and io.jwt.verify_es256, or another io.jwt.verify"
	parsing   = "crypto.x509.parse_certificates"
	schemas   = "spec.parametersSchema for parameters, and rules for input"

	parseAndVerify = "crypto.x509.parse_and_verify_certificates"
)

// Capabilities are those of this OPA without the builtins that are removed. A policy that calls
// one does not compile. Their JSON is what `opa check --capabilities` and `opa eval --capabilities`
// read.
func Capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool {
		_, bad := removed[b.Name]
		return bad || b.IsNondeterministic() // as another version of OPA may say of more
	})
	// Not nil, which would allow every host.
	c.AllowNet = []string{}
	return c
}
