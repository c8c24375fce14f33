// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/conditions.md anew")

// intro tells what each condition answers, in the order of the document.
var intro = []struct{ kind, typ, text string }{
	{kindExport, TypeValid, "Is there something to export?"},
	{kindExport, TypeReady, "Is it published for the clusters in its scope?"},
	{kindExport, TypeConflict, "Do the clusters that export the Service agree? Several reasons are joined by commas."},
	{kindExport, TypeAdmitted, "What do the policies of this cluster say of the export as it is stored now?"},
	{kindExport, TypeAvailable, "Does every cluster in its scope import it? The reason is the first problem in the order of this table; " +
		"the message names every problem, where it is, and since when."},
	{kindImport, TypeImportReady, "Can it be used in this cluster? What was left out of it stands in the message."},
	{kindImport, TypeAvailable, "Is every cluster heard of that contributes to it? The reason is the worst state; the message names the clusters, " +
		"and when they were last heard of. Whether the import can be used is `Ready`'s to say."},
	{kindImport, TypeDeletionHeld, "Does a deletion wait? The condition is there only while one does."},
}

func TestTheDocumentationSaysWhatTheTableSays(t *testing.T) {
	var text strings.Builder
	text.WriteString(`# Conditions

What Comity writes into the status of a ServiceExport and a ServiceImport, and what to do about it.
A reason is one word, the same in the condition, in the event that tells of it, and in this table, which is
made from the one in the program: ` + "`go test ./status/condition -update`" + `.

A condition is written when it changes, and its message names no time that moves: a clusterset in which nothing
happens writes nothing. While a cluster has not been read since Comity started, what stood there stays.
`)
	listed := 0
	for _, section := range intro {
		fmt.Fprintf(&text, "\n## %s: %s\n\n%s\n\n| status | reason | what it means | what to do |\n|---|---|---|---|\n", section.kind, section.typ, section.text)
		for _, entry := range Table() {
			if entry.Kind == section.kind && entry.Type == section.typ {
				fmt.Fprintf(&text, "| %s | `%s` | %s | %s |\n", entry.Status, entry.Reason, entry.Meaning, entry.Remedy)
				listed++
			}
		}
	}
	if listed != len(Table()) {
		t.Errorf("%d of %d reasons belong to a condition that the document explains", listed, len(Table()))
	}
	file := filepath.Join("..", "..", "docs", "conditions.md")
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	there, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(there), text.String()); diff != "" {
		t.Errorf("docs/conditions.md (-there +table; go test ./status/condition -update writes it):\n%s", diff)
	}
}
