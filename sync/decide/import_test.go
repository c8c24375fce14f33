// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// Where nothing is written, and that a slice of host names is none.
func TestWhereAnImportIsWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		change          func(*ImportView)
		write, resolved bool
	}{
		"as ever":                        {func(*ImportView) {}, true, true},
		"no namespace":                   {func(v *ImportView) { v.Local.Namespace = nil }, false, false},
		"a namespace of the cluster's":   {func(v *ImportView) { v.Local.Key.Namespace = "kube-system" }, false, false},
		"another implementation imports": {func(v *ImportView) { v.ImportDisabled, v.FormsAt = true, v.Now.Add(1) }, false, true},
		"no list may form yet":           {func(v *ImportView) { v.FormsAt, v.Peers[0].Synced = v.Now.Add(1), false }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, "b", "c")
			s.publishes("a", at(-30))
			s.v.Local.Slices = append(s.v.Local.Slices, &discoveryv1.EndpointSlice{AddressType: "FQDN"})
			tc.change(&s.v)
			d := Import(s.view())
			if d.Write != tc.write || (d.Finding.Import != nil) != tc.resolved || len(d.Plan.Sources["a"]) > 1 {
				t.Errorf("write is %v, resolved %+v, slices %v", d.Write, d.Finding.Import, d.Plan.Sources)
			}
		})
	}
}

// Each time after which the table has another outcome is one to decide again at.
func TestWhenAnImportIsDecidedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*story)
		want   time.Duration
	}{
		"nothing is to be waited for": {func(*story) {}, 0},
		"an entry that ended":         {func(s *story) { s.deletes("b"); s.step(); s.after(20 * time.Second) }, 40 * time.Second},
		"two, the earlier one":        {func(s *story) { s.deletes("b"); s.step(); s.after(20 * time.Second); s.withdraws("c", true) }, 40 * time.Second},
		"one that is out for long":    {func(s *story) { s.withdraws("b", true); s.step(); s.after(time.Minute) }, 0},
		"one that is missing":         {func(s *story) { s.loses("b") }, 0},
		"the own one is not known":    {func(s *story) { s.v.Own = OwnSource{State: model.SourceNotRead} }, ownRetry},
		"its grace ends":              {func(s *story) { s.v.Own.Until = s.v.Now.Add(time.Second) }, time.Second},
		"policies are not evaluated":  {func(s *story) { s.peer("b").Verdict = &decision.Verdict{} }, policyRetry},
		"nor for one that is missing": {func(s *story) { s.loses("b"); s.peer("b").Verdict = &decision.Verdict{} }, policyRetry},
		"nor for one without exports": {func(s *story) { s.peer("d").Verdict = &decision.Verdict{} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, "b", "c", "d")
			s.publishes("a", at(-30))
			s.publishes("b", at(-20))
			s.publishes("c", at(-10))
			s.step()
			s.after(time.Hour)
			tc.change(s)
			s.step()
			if s.last.Again != tc.want {
				t.Errorf("in %s, want %s", s.last.Again, tc.want)
			}
		})
	}
}

func TestTheFindingSaysWhatWasPlannedAndRefused(t *testing.T) {
	f := ImportFinding{Observation: model.Observation{Problems: []model.Problem{{Message: "left out"}}, Sources: []model.Source{{Cluster: "a", Down: true}, {Cluster: "b", Down: true}}}}
	planned := plan.ImportPlan{DerivedName: "derived-1", Unready: map[model.ClusterID]int{"b": 1}, Problems: []model.Problem{{Message: "planned"}}}
	got := f.AfterPlan(planned, []model.Problem{{Reason: model.ReasonRefused, Message: "refused"}}, []model.Problem{{Reason: model.ReasonContested, Message: "Service shop/derived-1 is contested"}})
	var messages []string
	for _, p := range got.Problems {
		messages = append(messages, p.Reason+" "+p.Message[:min(len(p.Message), 25)])
	}
	want := []string{" planned", "Refused refused", " left out", "Contested Service shop/derived-1 is"}
	if diff := cmp.Diff(want, messages); diff != "" || !got.Exists || !got.Sources[1].Down || got.Sources[0].Down {
		t.Errorf("got %+v; problems (-want +got):\n%s", got, diff)
	}
	if !f.Sources[0].Down || len(f.Problems) != 1 {
		t.Error("the finding that was given changed")
	}
}
