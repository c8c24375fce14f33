// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/policy/violation"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/preview"
)

func TestAnEffectSaysWhyAsPolicyEvalDoes(t *testing.T) {
	denied := []decision.Violation{
		{Policy: "p", Reason: "NotHere", Field: "spec", Message: "it stays\nhere", Remedy: "None.", Clusters: []string{"b"}},
		{Policy: "q", Message: "no"},
	}
	c := Cluster{ID: "a", Context: "a"}.with(preview.Report{Exports: preview.Part{Total: 2, Effects: []preview.Effect{
		{Kind: preview.Withdraw, Namespace: "shop", Name: "web", Why: denied},
		{Kind: preview.Block, Namespace: "shop", Name: "db", Problem: "policy r: it\nfailed"},
	}}})
	text, err := json.Marshal(c.Effects[0])
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Why []violation.Violation }
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if diff := cmp.Diff(violation.Of(denied), got.Why); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.Effects[1].Problem != "policy r: it\nfailed" {
		t.Errorf("got %+v", c.Effects[1])
	}
	var out bytes.Buffer
	if err := show(&out, Result{Clusters: []Cluster{c}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[p] spec: it stays here. Refused for cluster b. Remedy: None. (and 1 more)\n", "policy r: it failed\n", "Withdraw 1, Block 1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, out.String())
		}
	}
}
