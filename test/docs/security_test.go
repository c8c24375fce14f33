// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named is a link to a test: [`title of the spec or function`](../path/of_test.go).
var named = regexp.MustCompile("\\[`([^`]+)`\\]\\(\\.\\./([^)]+_test\\.go)\\)")

func TestEveryTestThatSecurityNamesExists(t *testing.T) {
	text := read(t, "docs/security.md")
	tests := named.FindAllStringSubmatch(text, -1)
	if len(tests) < 30 {
		t.Errorf("docs/security.md names %d tests; expected at least 30: did their form change?", len(tests))
	}
	for _, found := range tests {
		title, file := found[1], found[2]
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Errorf("docs/security.md names %q: %v", title, err)
			continue
		}
		if !strings.Contains(string(source), `"`+title+`"`) && !strings.Contains(string(source), "func "+title+"(") {
			t.Errorf("docs/security.md names %q, which %s does not have", title, file)
		}
	}
}

func TestEveryClaimOfSecurityHasATest(t *testing.T) {
	rows := 0
	for _, line := range strings.Split(read(t, "docs/security.md"), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasSuffix(line, "| test |") {
			continue
		}
		rows++
		if !named.MatchString(line) {
			t.Errorf("docs/security.md: no test in %q", line)
		}
	}
	if rows < 20 {
		t.Errorf("docs/security.md has %d rows; expected at least 20", rows)
	}
}
