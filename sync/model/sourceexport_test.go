// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSourceExportsAreReadAsWritten(t *testing.T) {
	at := time.Date(2026, 11, 22, 9, 30, 0, 0, time.UTC)
	want := []SourceExport{{Cluster: "a", UID: "of-a", CreatedAt: at}, {Cluster: "b", UID: "of-b", CreatedAt: at, Scoped: true}}
	text := FormatSourceExports(want)
	if text != "a/of-a/2026-11-22T09:30:00Z,b/of-b/2026-11-22T09:30:00Z/scoped" {
		t.Errorf("written as %q", text)
	}
	if diff := cmp.Diff(want, ParseSourceExports(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSourceExportsThatSomebodyChangedAreLeftOut(t *testing.T) {
	for _, text := range []string{"", "a", "a/of-a", "a//2026-11-22T09:30:00Z", "a/of-a/yesterday", "A_/of-a/2026-11-22T09:30:00Z",
		"a/of-a/2026-11-22T09:30:00Z/other", "a/of-a/2026-11-22T09:30:00Z/scoped/x"} {
		if got := ParseSourceExports(text); len(got) > 0 {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	if got := ParseSourceExports("rubbish,b/of-b/2026-11-22T09:30:00Z"); len(got) != 1 || got[0].Cluster != "b" {
		t.Errorf("got %v", got)
	}
}
