// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

func at(minute int) time.Time { return time.Date(2026, 11, 22, 9, minute, 0, 0, time.UTC) }

// One row for each case in which an export is not read any more.
func TestWhatIsMissingWasLostUnlessItWasWithdrawn(t *testing.T) {
	first := model.SourceExport{Cluster: "b", UID: "first", CreatedAt: at(0)}
	second := model.SourceExport{Cluster: "b", UID: "second", CreatedAt: at(1)}
	unknown := model.SourceExport{Cluster: "b"}
	scoped := first
	scoped.Scoped = true
	narrowed := []model.Withdrawal{{Cluster: "b", UID: "first", CreatedAt: at(0), Narrowed: true}}
	states := []model.Member{{ID: "b", Synced: true, StatesWithdrawals: true}}
	legacy := []model.Member{{ID: "b", Synced: true}}
	withdrawn := func(of model.SourceExport) []model.Withdrawal {
		return []model.Withdrawal{{Cluster: "b", UID: of.UID, CreatedAt: of.CreatedAt}}
	}
	live := []model.Export{{Cluster: "b", Key: web, UID: "second", CreatedAt: at(1)}}
	for name, tc := range map[string]struct {
		standing    model.SourceExport
		exports     []model.Export
		withdrawals []model.Withdrawal
		members     []model.Member
		notAccepted []model.ClusterID
		missing     bool
	}{
		"its exchange namespace was deleted":                          {standing: first, members: states, missing: true},
		"its record was deleted by label":                             {standing: first, members: states, missing: true},
		"the CRD of the records was deleted":                          {standing: first, members: states, missing: true},
		"a restored store has no record of it":                        {standing: first, members: states, missing: true},
		"a restored store has an older withdrawal of that name":       {standing: second, withdrawals: withdrawn(first), members: states, missing: true},
		"exported again under another UID, then lost":                 {standing: second, withdrawals: withdrawn(first), members: states, missing: true},
		"exported again, and not lost":                                {standing: first, exports: live, members: states},
		"withdrawn":                                                   {standing: first, withdrawals: withdrawn(first), members: states},
		"exported again and withdrawn while the importer was offline": {standing: first, withdrawals: withdrawn(second), members: states},
		"its scope was narrowed, and this cluster is not in it":       {standing: first, withdrawals: narrowed, members: states},
		"narrowed to this cluster, and then lost":                     {standing: scoped, withdrawals: narrowed, members: states, missing: true},
		"narrowed to this cluster, and then withdrawn from it":        {standing: scoped, withdrawals: append(narrowed, withdrawn(first)...), members: states},
		"narrowed to this cluster, and then withdrawn from all":       {standing: scoped, withdrawals: withdrawn(first), members: states},
		"narrowed to this cluster, exported again and withdrawn":      {standing: scoped, withdrawals: withdrawn(second), members: states},
		"a record that is not valid":                                  {standing: first, members: states, missing: true},
		"the annotation was removed by a user, and it was withdrawn":  {standing: unknown, withdrawals: withdrawn(first), members: states},
		"the annotation was removed by a user, and it was lost":       {standing: unknown, members: states, missing: true},
		"the withdrawal of another cluster":                           {standing: first, withdrawals: []model.Withdrawal{{Cluster: "c", UID: "first", CreatedAt: at(9)}}, members: states, missing: true},
		"a member that states nothing, one of few":                    {standing: first, withdrawals: []model.Withdrawal{{Cluster: "b"}}, members: legacy},
		"a member that states nothing, one of many at once":           {standing: first, members: legacy, missing: true},
		"a member that was not read":                                  {standing: first, members: []model.Member{{ID: "b", StatesWithdrawals: true}}},
		"a cluster that is no member":                                 {standing: first},
		"its namespace is not accepted":                               {standing: first, members: states, notAccepted: []model.ClusterID{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Missing([]model.SourceExport{tc.standing}, tc.exports, tc.withdrawals, tc.members, tc.notAccepted)
			if tc.missing != (len(got) == 1 && got[0] == "b") || len(got) > 1 {
				t.Errorf("missing are %v", got)
			}
		})
	}
}

func TestStandingIsWhatTheObjectsSay(t *testing.T) {
	known := []model.SourceExport{{Cluster: "c", UID: "of-c", CreatedAt: at(2)}, {Cluster: "a", UID: "own", CreatedAt: at(0)}, {Cluster: "b", UID: "of-b", CreatedAt: at(1)}}
	imported := func(annotation string) *mcsv1beta1.ServiceImport {
		s := &mcsv1beta1.ServiceImport{ObjectMeta: ours("web", nil), Status: mcsv1beta1.ServiceImportStatus{
			Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "a"}, {Cluster: "b"}, {Cluster: "c"}},
		}}
		s.Annotations = map[string]string{model.AnnotationExports: annotation}
		return s
	}
	foreignImport := imported(model.FormatSourceExports(known))
	foreignImport.ManagedFields = nil
	remaining := []*discoveryv1.EndpointSlice{derivedSlice("a"), derivedSlice("b"), derivedSlice("d", foreign)}
	for name, tc := range map[string]struct {
		current plan.Current
		want    []model.SourceExport
	}{
		"nothing exists":                     {plan.Current{}, nil},
		"the annotation":                     {plan.Current{Import: imported(model.FormatSourceExports(known))}, []model.SourceExport{known[2], known[0]}},
		"the annotation was removed":         {plan.Current{Import: imported("")}, []model.SourceExport{{Cluster: "b"}, {Cluster: "c"}}},
		"one of its items was changed":       {plan.Current{Import: imported("b/of-b/2026-11-22T09:01:00Z,c/rubbish")}, []model.SourceExport{known[2], {Cluster: "c"}}},
		"the ServiceImport was deleted":      {plan.Current{Slices: remaining}, []model.SourceExport{{Cluster: "b"}}},
		"somebody else made a ServiceImport": {plan.Current{Import: foreignImport, Slices: remaining}, []model.SourceExport{{Cluster: "b"}}},
		"the same cluster in all three ways": {plan.Current{Import: imported("b/of-b/2026-11-22T09:01:00Z"), Slices: remaining}, []model.SourceExport{known[2], {Cluster: "c"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Standing(tc.current, "a")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An export of a member that was read, and that is neither here nor held, was withdrawn.
func TestWhatAnImportListsThoughItWasWithdrawn(t *testing.T) {
	a, c := publishedBy("a", 30, "http"), publishedBy("c", 40, "http")
	for name, tc := range map[string]struct {
		view ImportView
		want []model.SourceExport
	}{
		"nothing is kept": {takeoverView(importedFrom(a, c), a), nil},
		"the last one is withdrawn, and the other unread":   {changed(takeoverView(importedFrom(a, c)), unread("c")), []model.SourceExport{sourceExport(a)}},
		"the deciding one is unread, and another withdrawn": {changed(takeoverView(importedFrom(a, c)), unread("a")), []model.SourceExport{sourceExport(c)}},
		"the deciding one is unread, and another stays":     {changed(takeoverView(importedFrom(a, c), c), unread("a")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Import(tc.view).Finding.Listed); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
