// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docs/conditions.md has a section for each condition, with a table of its reasons:
//
//	## ServiceExport: Valid
//	| False | <a id="serviceexport-valid-noservice"></a>`NoService` | what it means | what to do |
//
// The sections of other kinds come after those, and test/docs checks them.
var (
	section = regexp.MustCompile(`^## (.+)$`)
	reason  = regexp.MustCompile("^\\| (True|False|Unknown) \\| <a id=\"([a-z-]+)\"></a>`([A-Z][A-Za-z]+)` \\| (.+) \\| (.*)\\|$")
)

// page reads the rows of the documentation, as "ServiceExport: Valid, False, NoService", and
// for each of them what it means and what to do.
func page(t *testing.T) (rows []string, texts map[string][2]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "conditions.md"))
	if err != nil {
		t.Fatal(err)
	}
	texts = map[string][2]string{}
	condition := ""
	for _, line := range strings.Split(string(text), "\n") {
		if found := section.FindStringSubmatch(line); found != nil {
			condition = found[1]
		} else if kind, _, _ := strings.Cut(condition, ":"); kind != kindExport && kind != kindImport {
			continue
		} else if found := reason.FindStringSubmatch(line); found != nil {
			row := fmt.Sprintf("%s, %s, %s", condition, found[1], found[3])
			rows, texts[row] = append(rows, row), [2]string{found[4], strings.TrimSpace(found[5])}
			if want := strings.ToLower(strings.ReplaceAll(condition, ": ", "-") + "-" + found[3]); found[2] != want {
				t.Errorf("%s: the anchor is %s, want %s", row, found[2], want)
			}
		} else if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| status") {
			t.Errorf("not a row of a reason: %s", line)
		}
	}
	return rows, texts
}

func TestTheDocumentationListsEveryReasonOnceAndInOrder(t *testing.T) {
	rows, texts := page(t)
	var want []string
	for _, r := range table {
		for _, reason := range r.reasons {
			want = append(want, fmt.Sprintf("%s: %s, %s, %s", r.kind, r.typ, r.status, reason))
		}
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("docs/conditions.md (-table +there):\n%s", diff)
	}
	if len(texts) != len(rows) {
		t.Error("a reason of a condition is listed twice")
	}
}

func TestTheDocumentationSaysWhatEachReasonMeansAndWhatToDo(t *testing.T) {
	_, texts := page(t)
	for _, r := range table {
		for _, reason := range r.reasons {
			where := fmt.Sprintf("%s: %s, %s, %s", r.kind, r.typ, r.status, reason)
			meaning, remedy := texts[where][0], texts[where][1]
			if !strings.HasSuffix(meaning, ".") {
				t.Errorf("%s: meaning %q is no sentence", where, meaning)
			}
			if remedy == "" && r.attention != quiet && r.status != yes {
				t.Errorf("%s: nothing tells what to do about it", where)
			}
			if remedy != "" && !strings.HasSuffix(remedy, ".") {
				t.Errorf("%s: remedy %q is no sentence", where, remedy)
			}
		}
	}
}

// The reason of a ServiceExport's Available and the problem of an import have one text.
func TestAProblemMeansTheSameWhereverItIsListed(t *testing.T) {
	_, texts := page(t)
	for _, reason := range problemsHere {
		there := texts[fmt.Sprintf("ServiceExport: Available, False, %s", reason)]
		here := texts[fmt.Sprintf("ServiceImport: Ready, False, %s", reason)]
		if !slices.Contains(problems, reason) || there != here {
			t.Errorf("%s: %q and %q", reason, there, here)
		}
	}
}
