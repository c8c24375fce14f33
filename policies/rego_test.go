// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/authoring"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// sources are the Rego files of this folder, tests and all, by path. Format and Rego tests
// of the policies are those of `kubectl comity policy`: TestThePoliciesOfThisRepository in
// its package.
func sources(t *testing.T) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".rego" {
			return err
		}
		text, err := os.ReadFile(path)
		found[path] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 23 {
		t.Fatalf("found %d Rego files, expected the library and ten policies with their tests", len(found))
	}
	return found
}

func TestTheLibrary(t *testing.T) {
	bench := authoring.Bench{
		Policy: engine.Policy{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "package comity.policies.p\n\ndeny contains {\"msg\": \"no\"} if input.cluster == \"z\"\n"}},
		Files:  map[string]string{}, Fixtures: map[string]any{}, Timeout: time.Minute,
	}
	for path, text := range sources(t) {
		if !strings.HasPrefix(path, "lib/") {
			continue
		}
		if strings.HasSuffix(path, "_test.rego") {
			bench.Files[path] = string(text)
		}
		if formatted, err := authoring.Format(path, string(text)); err != nil || formatted != string(text) {
			t.Errorf("%s is not formatted as opa fmt formats it (%v)", path, err)
		}
	}
	report, err := authoring.Run(t.Context(), bench)
	if err != nil || len(report.Results) == 0 {
		t.Fatalf("%d tests: %v", len(report.Results), err)
	}
	for _, result := range report.Results {
		if result.Outcome != authoring.Passed {
			t.Errorf("%s: %s: %v", result.Place, result.Name, result.Messages)
		}
	}
}
