// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies"
	"github.com/comity-mcs/comity/policies/engine"
)

func TestTheCapabilitiesAreUpToDate(t *testing.T) {
	want, err := engine.Capabilities()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../" + capabilitiesFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not up to date; run make generate (-want +got):\n%s", capabilitiesFile, diff)
	}
}

// TestOPAReadsTheCapabilities does what `opa check --capabilities` does.
func TestOPAReadsTheCapabilities(t *testing.T) {
	capabilities, err := ast.LoadCapabilitiesFile("../../" + capabilitiesFile)
	if err != nil {
		t.Fatal(err)
	}
	check := func(module string) error {
		modules := map[string]string{"policy.rego": module}
		for file, text := range policies.Library() {
			modules[file] = text
		}
		_, err := ast.CompileModulesWithOpt(modules, ast.CompileOpts{ParserOptions: ast.ParserOptions{Capabilities: capabilities}})
		return err
	}
	baselines, err := policies.Baselines()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range baselines {
		if err := check(b.Module); err != nil {
			t.Errorf("policy %s: %v", b.Name, err)
		}
	}
	for _, call := range []string{`http.send({"method": "get", "url": "http://example.com"})`, `time.now_ns()`, `bits.lsh(1, 2)`, `rand.intn("x", 3)`} {
		if err := check("package x\n\np := " + call + "\n"); err == nil || !strings.Contains(err.Error(), "undefined function") {
			t.Errorf("%s compiles with the capabilities: %v", call, err)
		}
	}
}
