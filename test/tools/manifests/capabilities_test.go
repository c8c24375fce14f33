// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies"
	"github.com/comity-mcs/comity/policies/source"
)

func TestOPAReadsTheCapabilities(t *testing.T) {
	allowed, err := ast.LoadCapabilitiesFile("../../../" + capabilities)
	if err != nil {
		t.Fatal(err)
	}
	check := func(module string) error {
		modules := map[string]string{"policy.rego": module}
		for file, text := range policies.Library() {
			modules[file] = text
		}
		_, err := ast.CompileModulesWithOpt(modules, ast.CompileOpts{ParserOptions: ast.ParserOptions{Capabilities: allowed}})
		return err
	}
	baselines, err := source.Read("../../../charts/comity/files/policies")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range baselines {
		if err := check(b.Object.Spec.Rego); err != nil {
			t.Errorf("policy %s: %v", b.Name(), err)
		}
	}
	for _, call := range []string{`http.send({"method": "get", "url": "http://example.com"})`, `time.now_ns()`, `bits.lsh(1, 2)`, `rand.intn("x", 3)`} {
		if err := check("package x\n\np := " + call + "\n"); err == nil || !strings.Contains(err.Error(), "undefined function") {
			t.Errorf("%s compiles with the capabilities: %v", call, err)
		}
	}
}
