// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

var (
	regoBlock = regexp.MustCompile("(?s)```rego\n(.*?)```")
	pkg       = regexp.MustCompile(`(?m)^package comity\.policies\.(\w+)$`)
	link      = regexp.MustCompile(`\]\(([^)#:]+)\)`)
)

// TestTheRegoInDocumentsCompiles: what a reader copies must work, and be formatted.
func TestTheRegoInDocumentsCompiles(t *testing.T) {
	found := 0
	for _, file := range []string{"README.md", "INPUT.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regoBlock.FindAllStringSubmatch(string(text), -1) {
			name := pkg.FindStringSubmatch(block[1])
			if name == nil {
				continue // a part of a module
			}
			found++
			policy := engine.Policy{Name: strings.ReplaceAll(name[1], "_", "-"), ExportPolicySpec: v1alpha1.ExportPolicySpec{
				Rego: block[1], Parameters: &apiextensionsv1.JSON{Raw: []byte(`{"label": "team"}`)},
			}}
			e := engine.New(engine.Options{Timeout: time.Minute})
			if _, err := e.Change(policy); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			formatted, err := format.SourceWithOpts(file, []byte(block[1]), format.Opts{RegoVersion: ast.RegoV1})
			if err != nil || string(formatted) != block[1] {
				t.Errorf("%s: package %s is not as opa fmt writes it: %v", file, name[1], err)
			}
		}
	}
	if found < 3 {
		t.Errorf("found %d modules in README.md and INPUT.md; expected at least 3: did their form change?", found)
	}
}

func TestReadmeLinksLeadSomewhereAndNameEveryPolicy(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{}
	for _, l := range link.FindAllStringSubmatch(string(text), -1) {
		linked[l[1]] = true
		if _, err := os.Stat(filepath.FromSlash(l[1])); err != nil {
			t.Errorf("README.md links %s: %v", l[1], err)
		}
	}
	for _, b := range all(t) {
		if !linked[b.Name()+"/policy.rego"] {
			t.Errorf("README.md does not link policy %s", b.Name())
		}
	}
}
