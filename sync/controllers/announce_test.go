// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"k8s.io/client-go/tools/events"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// A source that is kept out has an event, once, also where there is no ServiceImport.
func TestASourceThatIsKeptOutHasAnEvent(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	i := &importController{base: &base{recorder: recorder}}
	for reason, want := range map[string]int{
		model.ReasonPolicyDenied: 1, model.ReasonNotEvaluated: 1, model.ReasonNamespaceUnknown: 1, model.ReasonNamespaceNotAccepted: 1,
		model.ReasonAddressOverlap: 0,
	} {
		var before []model.Problem
		for range 2 {
			now := []model.Problem{{Reason: reason, Cluster: "c", Message: "why"}}
			i.announce(importKey, plan.Current{}, before, now)
			before = now
		}
		got := len(recorder.Events)
		if got != want {
			t.Errorf("%s: %d events, want %d", reason, got, want)
		}
		for range got {
			if event := <-recorder.Events; event != "Warning "+reason+" why" {
				t.Errorf("%s: event %q", reason, event)
			}
		}
	}
}
