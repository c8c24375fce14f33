// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const document = `# Title

` + "```sh\necho registry.example/chart\n# a comment is no heading\n```" + `

## 1. First

` + "```console\nfalse\n```\n```sh\ncat <<'END'\na\nEND\n```\n```\nfalse\n```\n"

func TestOnlyBlocksMarkedForAShellAreRead(t *testing.T) {
	want := []Block{
		{Section: "Title", Line: 4, Text: "echo registry.example/chart\n# a comment is no heading\n"},
		{Section: "1. First", Line: 14, Text: "cat <<'END'\na\nEND\n"},
	}
	have, err := Read(document)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[1:], Under(have, "First")); diff != "" {
		t.Error(diff)
	}
	if _, err := Read("\n```sh\ntrue\n"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("an unclosed block gives %v", err)
	}
}

func TestBlocksRunInOrderWithSubstitutionsUntilOneFails(t *testing.T) {
	var out bytes.Buffer
	r := Runner{
		Dir: t.TempDir(), Env: append(os.Environ(), "GREETING=hello"), Timeout: time.Minute, Out: &out, Begin: time.Now(),
		Table: []Substitution{{Published: "registry.example/chart", Local: "./local"}},
	}
	blocks := []Block{
		{Section: "S", Line: 1, Text: "echo registry.example/chart >file; printf '%s' \"$GREETING\"\n"},
		{Section: "S", Line: 7, Text: "cat file\nfalse\necho never\n"},
		{Section: "S", Line: 11, Text: "echo after\n"},
	}
	all, err := r.Run(context.Background(), blocks)
	if err == nil || !strings.Contains(err.Error(), `line 7, in section "S"`) || !strings.Contains(err.Error(), "./local") {
		t.Errorf("the error is %v, want one that names line 7 and has the output", err)
	}
	if all != "hello./local\n" {
		t.Errorf("printed %q", all)
	}
	if said := out.String(); !strings.Contains(said, "    | hello\n") || !strings.Contains(said, "$ echo ./local >file") || !strings.Contains(said, "took ") {
		t.Errorf("shown:\n%s", said)
	}
}

func TestABlockThatTakesTooLongIsEnded(t *testing.T) {
	r := Runner{Env: os.Environ(), Timeout: 50 * time.Millisecond, Out: &bytes.Buffer{}}
	if _, err := r.Run(context.Background(), []Block{{Text: "sleep 60"}}); err == nil || !strings.Contains(err.Error(), "ended after") {
		t.Errorf("the error is %v", err)
	}
}

func TestASubstitutionThatFitsNothingIsFound(t *testing.T) {
	table := []Substitution{{Published: "a"}, {Published: "b"}}
	if diff := cmp.Diff(table[1:], Unused([]Block{{Text: "xax"}}, table)); diff != "" {
		t.Error(diff)
	}
}

func TestTheInstallationGuideHasTheSectionsThatAreRun(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := Read(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range append(Sections(), Uninstall) {
		if len(Under(blocks, section)) == 0 {
			t.Errorf("docs/install.md has no block to run in a section %q", section)
		}
	}
	if all := len(blocks); all != len(Selected(blocks, Sections()...))+len(Under(blocks, Uninstall)) {
		t.Errorf("docs/install.md has %d blocks to run, and some are in none of the sections %q and %q", all, Sections(), Uninstall)
	}
	if unused := Unused(blocks, Table("", "", "", "")); len(unused) > 0 {
		t.Errorf("no block has these references, which the end-to-end test substitutes: %+v", unused)
	}
}
