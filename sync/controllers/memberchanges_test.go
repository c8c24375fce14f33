// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/comity-mcs/comity/sync/model"
)

func TestAWorseLivenessIsToldFromEveryOtherChange(t *testing.T) {
	m := newMemberChanges()
	is := func(state model.LivenessState, synced bool, reason string) []model.Member {
		return []model.Member{{ID: "a"}, {ID: "b", Synced: synced, Liveness: model.Liveness{State: state, Reason: reason}}}
	}
	for _, step := range []struct {
		name    string
		members []model.Member
		want    bool
	}{
		{"one that is new", is(model.Connected, false, ""), false},
		{"one that became synced", is(model.Connected, true, ""), false},
		{"one told of without a change, which may have another connection", is(model.Connected, true, ""), false},
		{"one that is stale now", is(model.Stale, true, ""), true},
		{"one of which it is now known why", is(model.Stale, true, "Unreachable"), true},
		{"one that is lost now", is(model.Lost, true, "Unreachable"), true},
		{"one of which nothing keeps it from being read any more", is(model.Lost, true, ""), false},
		{"one that is heard of again", is(model.Connected, true, ""), false},
		{"one that is stale and not synced any more", is(model.Stale, false, ""), false},
		{"one that went", []model.Member{{ID: "a"}}, false},
		{"one that came back stale", is(model.Stale, true, ""), false},
	} {
		if got := m.onlyLivenessWorsened("b", step.members); got != step.want {
			t.Errorf("%s: got %v", step.name, got)
		}
	}
	labeled := is(model.Lost, true, "")
	labeled[1].Labels = map[string]string{"region": "eu"}
	if m.onlyLivenessWorsened("b", labeled) {
		t.Error("a member that scopes select otherwise concerns everything")
	}
}
