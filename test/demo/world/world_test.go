// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

func TestOutputIsComparedWithoutItsLayout(t *testing.T) {
	const out = "NAME      LABELS   EXPORT TO\ninternal  <none>   b,c\n"
	if err := Contains(out, "internal <none> b,c", "EXPORT TO"); err != nil {
		t.Error(err)
	}
	err := Contains(out, "internal", "Forbidden")
	if err == nil || !strings.Contains(err.Error(), `"Forbidden"`) || !strings.Contains(err.Error(), out) {
		t.Errorf("got error %v, want one with the text that is missing and the output", err)
	}
}

func TestRecordsAreSortedValues(t *testing.T) {
	var answer []dns.RR
	for _, line := range []string{"a. 5 IN A 10.0.0.2", "a. 5 IN A 10.0.0.1", "a. 5 IN AAAA fd00::1", "_h._tcp.a. 5 IN SRV 0 50 80 b.a.", "a. 5 IN CNAME c."} {
		record, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		answer = append(answer, record)
	}
	if diff := cmp.Diff([]string{"10.0.0.1", "10.0.0.2", "80 b.a.", "fd00::1"}, records(answer)); diff != "" {
		t.Error(diff)
	}
}
