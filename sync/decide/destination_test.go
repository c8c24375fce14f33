// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

var (
	heard = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	lost  = heard.Add(5 * time.Minute)
	began = heard.Add(-time.Hour)
)

func member(id model.ClusterID, synced bool, state model.LivenessState) model.Member {
	m := model.Member{ID: id, Synced: synced, Reported: synced, Liveness: model.Liveness{State: state}}
	if state != model.Connected {
		m.Liveness.Since = lost
		if synced {
			m.Liveness.Confirmed = heard
		}
	}
	return m
}

// all are the Destinations of a published export.
func all(self model.ClusterID, scope model.Scope, members []model.Member, reports []model.Report, uid types.UID) []model.Report {
	out, _ := Destinations(self, model.Observation{Publication: model.Published, Scope: scope}, members, reports, uid)
	return out
}

func TestDestinations(t *testing.T) {
	imported := func(uid types.UID) []model.Report {
		return []model.Report{{Cluster: "b", ExportUID: uid, Imported: true, Reason: model.ReasonImported, Since: began}}
	}
	missing := []model.Report{{Cluster: "b", ExportUID: "u", Reason: model.ReasonNamespaceMissing, Message: "create it", Since: began}}
	cases := []struct {
		name    string
		member  model.Member
		reports []model.Report
		want    model.Report
		says    string
	}{
		{"says that it imports", member("b", true, model.Connected), imported("u"),
			model.Report{Imported: true, Reason: model.ReasonImported, Since: began}, ""},
		{"says why not", member("b", true, model.Connected), missing,
			model.Report{Reason: model.ReasonNamespaceMissing, Since: began}, "create it"},
		{"speaks of an export that is gone", member("b", true, model.Connected), imported("old"),
			model.Report{Reason: model.ReasonPending}, "cluster b has not reported yet"},
		{"has not been read", member("b", false, model.Connected), nil,
			model.Report{Reason: model.ReasonPending, Unsynced: true}, "cluster b has not been read yet"},
		{"has been read but for its reports", model.Member{ID: "b", Synced: true, Liveness: model.Liveness{State: model.Connected}}, nil,
			model.Report{Reason: model.ReasonPending, Unsynced: true}, "cluster b has not been read yet"},
		{"is lost: what it said counts, and that is told", member("b", true, model.Lost), imported("u"),
			model.Report{Imported: true, Reason: "Lost", Since: lost}, "no heartbeat of cluster b is seen"},
		{"is lost and did not import", member("b", true, model.Lost), missing,
			model.Report{Reason: model.ReasonNamespaceMissing, Since: began}, "create it; this is its last report: no heartbeat"},
		{"is lost and said nothing", member("b", true, model.Lost), nil,
			model.Report{Reason: model.ReasonUnreachable, Since: lost}, "no heartbeat of cluster b is seen"},
		{"never answered", member("b", false, model.Lost), nil,
			model.Report{Reason: model.ReasonUnreachable, Since: lost}, "no heartbeat of cluster b is seen"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := all("a", model.ScopeAll(), []model.Member{c.member}, c.reports, "u")
			if len(got) != 1 {
				t.Fatalf("got %v", got)
			}
			if !strings.Contains(got[0].Message, c.says) || (c.says == "") != (got[0].Message == "") {
				t.Errorf("says %q", got[0].Message)
			}
			c.want.Cluster, got[0].Message = "b", ""
			if c.want.Reason != model.ReasonPending && c.want.Reason != model.ReasonUnreachable { // else nothing is reported of this export
				c.want.ExportUID = "u"
			}
			if diff := cmp.Diff(c.want, got[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDestinationsAreThoseInScope(t *testing.T) {
	members := []model.Member{member("d", true, model.Connected), member("c", true, model.Connected), member("b", true, model.Connected)}
	for name, c := range map[string]struct {
		scope model.Scope
		want  string
	}{
		"every cluster":            {model.ScopeAll(), "b Pending, c Pending, d Pending"},
		"some, and one not joined": {model.ScopeOf("d", "e", "a", "b"), "b Pending, d Pending, e UnknownCluster"},
		"this cluster alone":       {model.ScopeOf("a"), ""},
		"none, as after a mistake": {model.Scope{}, ""},
		"one that is not joined":   {model.ScopeOf("zz"), "zz UnknownCluster"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range all("a", c.scope, members, nil, "u") {
				got = append(got, fmt.Sprint(d.Cluster, " ", d.Reason))
			}
			if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAHundredMembersAreBounded(t *testing.T) {
	var members []model.Member
	var reports []model.Report
	for i := range 100 {
		id := model.ClusterID(fmt.Sprintf("member-%02d", 99-i))
		m := member(id, true, model.Lost)
		m.Liveness.Message = strings.Repeat("x", 200)
		members = append(members, m)
		reports = append(reports, model.Report{Cluster: id, ExportUID: "u", Reason: model.ReasonRefused, Message: strings.Repeat("y", 1<<20)})
	}
	got := all("a", model.ScopeAll(), members, reports, "u")
	if len(got) != 100 || got[0].Cluster != "member-00" || got[99].Cluster != "member-99" {
		t.Fatalf("%d destinations, not sorted", len(got))
	}
	for _, d := range got {
		if len(d.Message) > 2*maxMessage {
			t.Fatalf("%d bytes of message", len(d.Message))
		}
	}
	if allocs := testing.AllocsPerRun(10, func() { all("a", model.ScopeAll(), members, reports, "u") }); allocs > 2000 {
		t.Errorf("%.0f allocations for 100 members", allocs)
	}
}
