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

var update = flag.Bool("update", false, "write docs/conditions.md")

// intro is the question that each condition answers, in the order of the document.
var intro = []struct{ kind, typ, text string }{
	{kindExport, TypeValid, "Is there something to export?"},
	{kindExport, TypeReady, "Is it published for the clusters in its scope?"},
	{kindExport, TypeConflict, "Do the clusters that export the Service agree? Several reasons are joined by commas."},
	{kindExport, TypeAdmitted, "Do the policies of this cluster allow the export as it is stored now?"},
	{kindExport, TypeAvailable, "Does every cluster in its scope import it? If not, the reason is the first problem in the order of this table. " +
		"The message names every problem, its cluster and, if that cluster reported it, the time at which it began. If every cluster imports the Service " +
		"in spite of a problem, such as `TakeoverHeld` or a few endpoints that are left out, the status is True and only the message names the problem."},
	{kindImport, TypeImportReady, "Can it be used in this cluster? The message names what is left out of it, and the clusters from which nothing, or nothing new, is imported: `PolicyDenied`, `NotEvaluated`, `NamespaceUnknown` and `NamespaceNotAccepted` stand there, and in events on the ServiceImport, with what to do about them."},
	{kindImport, TypeAvailable, "Is every cluster connected that contributes to it? The reason is the worst state; the message names the clusters " +
		"and the time of their last heartbeat. Whether the import can be used is in `Ready`."},
	{kindImport, TypeSourceMissing, "Is an export missing that its cluster did not withdraw? The condition exists only while one is, and does not end by time."},
	{kindImport, TypeFrozen, "Do the properties of the import not change, because of the export that decides it? The condition exists only while they do not. The reason is the row of the import table that applies to that export."},
	{kindImport, TypeTakeoverHeld, "Does another export wait for a confirmation before it decides the properties of the import? The condition exists only while one does."},
}

func TestTheDocumentationSaysWhatTheTableSays(t *testing.T) {
	var text strings.Builder
	text.WriteString(`# Conditions

This page lists the conditions that Comity writes into the status of a ServiceExport and a ServiceImport, and what to do about them.
[peers.md](peers.md#conditions) lists those of a Peer, and [imports.md](imports.md) explains the table by which imports are decided.
A reason is one word, the same in the condition, in its event, and on this page, which is generated from
the code: ` + "`go test ./status/condition -update`" + `.

A condition is written only when it changes, and its message has no time that changes by itself: while nothing happens,
nothing is written. After a restart, conditions stay as they are until the clusters that they depend on have been read.
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
