// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// recordIn is this cluster's record of shop/web in an exchange namespace; one that states
// that the export ended says so since a time.
func recordIn(namespace string, uid types.UID, withdrawn bool, written time.Time) *exchangev1alpha1.ExportRecord {
	r := &exchangev1alpha1.ExportRecord{ObjectMeta: ours(model.RecordName("shop", "web"), nil)}
	r.Namespace, r.UID = namespace, "record"
	r.Spec.ExportUID, r.Spec.Withdrawn, r.Spec.ExportedAt = uid, withdrawn, metav1.NewTime(noon.Add(-48*time.Hour))
	if withdrawn {
		r.Spec.WithdrawnAt = &metav1.Time{Time: written}
	}
	return r
}

// outcome is what the plan of a decision does in each exchange namespace.
func outcome(d ExportDecision) map[string]string {
	out := map[string]string{}
	planned := plan.Publish(d.Plan)
	for word, lists := range map[string][][]plan.Action{"published": planned.Publish, "withdrawn": planned.Withdraw, "left": planned.Leave} {
		for _, actions := range lists {
			for _, a := range actions {
				record, is := a.Object.(*exchangev1alpha1.ExportRecord)
				switch {
				case is && record.Spec.Withdrawn != (word == "withdrawn"):
					word = fmt.Sprintf("%s, but the record says withdrawn: %v", word, record.Spec.Withdrawn)
				case a.Verb == plan.Delete && word == "withdrawn":
					word = "collected"
				}
			}
			out[actions[0].Object.GetNamespace()] = word
		}
	}
	return out
}

// publishedIn has the records of the export in these namespaces, and in no other.
func publishedIn(namespaces ...string) func(*ExportView) {
	return func(v *ExportView) {
		v.Records = nil
		for _, namespace := range namespaces {
			v.Records = append(v.Records, recordIn(namespace, "u", false, noon))
		}
	}
}

// unavailable makes an exchange namespace one that cannot be written.
func unavailable(namespace string) func(*ExportView) {
	return func(v *ExportView) { v.Unavailable = map[string]string{namespace: namespace + " is missing"} }
}

func TestWhatIsNoLongerPublishedIsWithdrawn(t *testing.T) {
	notEvaluated := func(v *ExportView) { v.Local.Verdict = decision.Verdict{Problem: "deadline"} }
	for name, tc := range map[string]struct {
		view ExportView
		want map[string]string
	}{
		"the ServiceExport is deleted": {exported(publishedIn("comity-a"), func(v *ExportView) { v.Local.Export = nil }),
			map[string]string{"comity-a": "withdrawn"}},
		"its Service is deleted": {exported(publishedIn("comity-a"), func(v *ExportView) { v.Local.Service = nil }),
			map[string]string{"comity-a": "withdrawn"}},
		"policies deny it": {exported(publishedIn("comity-a"), func(v *ExportView) { v.Local.Verdict.Outcome = decision.Denied }),
			map[string]string{"comity-a": "withdrawn"}},
		"its scope becomes narrower": {exported(publishedIn("comity-a"), to("b")),
			map[string]string{"comity-a": "withdrawn", "comity-a-to-b": "published"}},
		"its scope becomes this cluster": {exported(publishedIn("comity-a"), to("a")),
			map[string]string{"comity-a": "withdrawn"}},
		"FAULT 33: its scope becomes narrower, and that exchange namespace is missing": {exported(publishedIn("comity-a"), to("b"), unavailable("comity-a-to-b")),
			map[string]string{"comity-a": "withdrawn"}},
		"FAULT 33: its scope becomes narrower while policies cannot be evaluated": {exported(publishedIn("comity-a"), to("b"), notEvaluated),
			map[string]string{"comity-a": "withdrawn", "comity-a-to-b": "published"}},
		"FAULT 33: the same, and the exchange namespace is missing": {exported(publishedIn("comity-a"), to("b"), notEvaluated, unavailable("comity-a-to-b")),
			map[string]string{"comity-a": "withdrawn"}},
		"one of two peers is taken off the list while policies cannot be evaluated": {exported(publishedIn("comity-a-to-b", "comity-a-to-c"), to("b"), notEvaluated),
			map[string]string{"comity-a-to-b": "published", "comity-a-to-c": "withdrawn"}},
		"an earlier export of the name is out of scope while policies cannot be evaluated": {exported(publishedIn("comity-a"), to("b"), notEvaluated, func(v *ExportView) { v.Local.Export.UID = "new" }),
			map[string]string{"comity-a": "withdrawn"}},
		"another peer is put on the list while policies cannot be evaluated": {exported(publishedIn("comity-a-to-b"), to("b,c"), notEvaluated),
			map[string]string{"comity-a-to-b": "published"}},
		"its scope becomes wider": {exported(publishedIn("comity-a-to-b")),
			map[string]string{"comity-a": "published", "comity-a-to-b": "left"}},
		"its scope becomes wider, and the exchange namespace of all members is missing": {exported(publishedIn("comity-a-to-b"), unavailable("comity-a")),
			map[string]string{}},
		"its scope becomes wider while policies cannot be evaluated": {exported(publishedIn("comity-a-to-b"), notEvaluated),
			map[string]string{"comity-a-to-b": "published"}},
		"a namespace states its withdrawal, and the scope becomes wider": {exported(publishedIn("comity-a"), func(v *ExportView) {
			v.Records = append(v.Records, recordIn("comity-a-to-b", "u", true, noon))
		}), map[string]string{"comity-a": "published", "comity-a-to-b": "left"}},
		"exported again after a withdrawal": {exported(publishedIn(), func(v *ExportView) { v.Records = append(v.Records, recordIn("comity-a", "old", true, noon)) }),
			map[string]string{"comity-a": "published"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, outcome(Export(tc.view))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FAULT 48: statements of withdrawal do not pile up while a member is gone or unreadable.
func TestFault48AStatementOfAnEndedExportIsCollected(t *testing.T) {
	read := []model.Member{{ID: "b", Synced: true, Reported: true}, {ID: "c", Synced: true, Reported: true}}
	unread := []model.Member{{ID: "b", Synced: true, Reported: true}, {ID: "c", Synced: true}}
	about := func(cluster model.ClusterID, uid types.UID) func(*ExportView) {
		return func(v *ExportView) { v.Reports = []model.Report{{Cluster: cluster, ExportUID: uid}} }
	}
	const month = 30 * 24 * time.Hour
	for name, tc := range map[string]struct {
		in      string
		age     time.Duration
		members []model.Member
		change  func(*ExportView)
		collect bool
	}{
		"it is young":                          {"comity-a", 59 * time.Minute, read, nil, false},
		"this cluster's clock went back":       {"comity-a", -2 * time.Hour, read, nil, false},
		"every member has followed it":         {"comity-a", time.Hour, read, nil, true},
		"a member was not read":                {"comity-a", month - time.Second, unread, nil, false},
		"a member was not read for 30 days":    {"comity-a", month, unread, nil, true},
		"a member reports the export still":    {"comity-a", time.Hour, read, about("c", "u"), false},
		"the same, for 30 days":                {"comity-a", month, read, about("c", "u"), true},
		"a member reports another export":      {"comity-a", time.Hour, read, about("c", "new"), true},
		"who was not read is not its reader":   {"comity-a-to-b", time.Hour, unread, about("c", "u"), true},
		"its reader is no member now":          {"comity-a-to-d", time.Hour, read, nil, false},
		"its reader was removed":               {"comity-a-to-d", time.Hour, read, func(v *ExportView) { v.Removed = []model.ClusterID{"d"} }, true},
		"it is one of those that are too many": {"comity-a", time.Minute, unread, func(v *ExportView) { v.CollectBefore = "2026-06-01T11:59:30Z/comity-a/web.shop" }, true},
		"younger ones are not":                 {"comity-a", time.Minute, unread, func(v *ExportView) { v.CollectBefore = "2026-06-01T11:58:30Z/comity-a/web.shop" }, false},
		"it is suspended, and the ServiceExport exists": {"comity-a", month, read, func(v *ExportView) {
			v.Records[0].Spec.Suspended = true
			v.Local.Export, v.Local.Verdict.Outcome = exported().Local.Export, decision.Denied
		}, false},
		"it has no time": {"comity-a", month, read, func(v *ExportView) { v.Records[0].Spec.WithdrawnAt = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := exported(func(v *ExportView) {
				v.Now, v.Members, v.Local.Export = noon, tc.members, nil
				v.Records = []*exchangev1alpha1.ExportRecord{recordIn(tc.in, "u", true, noon.Add(-tc.age))}
				if tc.change != nil {
					tc.change(v)
				}
			})
			d := Export(v)
			if got := slices.Contains(d.Plan.Collect, tc.in); got != tc.collect || slices.ContainsFunc(v.Records, IsEnded) && (d.Again == 0) != tc.collect {
				t.Errorf("collected: %v, again in %s; want %v", got, d.Again, tc.collect)
			}
		})
	}
}

func TestARecordNamesTheSlicesThatArePublished(t *testing.T) {
	v := exported(func(v *ExportView) {
		v.IdentityLabels = []string{"team", "zone"}
		v.Local.Namespace.Labels = map[string]string{"team": "x", "secret": "y"}
		v.Local.Slices = []*discoveryv1.EndpointSlice{
			{ObjectMeta: metav1.ObjectMeta{Name: "web-2"}, AddressType: "IPv6"},
			{ObjectMeta: metav1.ObjectMeta{Name: "web-3"}, AddressType: "FQDN"},
			{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, AddressType: "IPv4"},
		}
	})
	d := Export(v)
	if diff := cmp.Diff([]string{"web-1", "web-2"}, d.Plan.Record.Slices); diff != "" || len(d.Plan.Slices) != 2 {
		t.Errorf("%d copies (-want +got):\n%s", len(d.Plan.Slices), diff)
	}
	if diff := cmp.Diff(map[string]string{"team": "x"}, d.Plan.Record.Namespace.Labels); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}

	v.Local.Namespace.Labels = nil
	if got := Export(v).Plan.Record.Namespace; got == nil {
		t.Error("a namespace without identity labels is not told from one of which nothing is known")
	}

	v.Local.Slices[2].Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}}
	if diff := cmp.Diff(d.Plan.Record.Slices, Export(v).Plan.Record.Slices); diff != "" {
		t.Errorf("a change of endpoints writes the record (-want +got):\n%s", diff)
	}

	v.Local.Verdict = decision.Verdict{}
	v.Local.Slices = v.Local.Slices[:1]
	if diff := cmp.Diff([]string{"web-2"}, Export(v).Plan.Record.Slices); diff != "" {
		t.Errorf("while policies cannot be evaluated, endpoints follow (-want +got):\n%s", diff)
	}
}

func TestARecordNamesNoMoreSlicesThanItMay(t *testing.T) {
	v := exported(func(v *ExportView) {
		v.Local.Slices = nil
		for n := range exchange.MaxSliceNames + 2 {
			v.Local.Slices = append(v.Local.Slices, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%04d", n)}, AddressType: "IPv4"})
		}
		slices.Reverse(v.Local.Slices)
	})
	d := Export(v)
	if len(d.Plan.Slices) != exchange.MaxSliceNames || len(d.Plan.Record.Slices) != exchange.MaxSliceNames || d.Plan.Record.Slices[1999] != "web-1999" {
		t.Errorf("%d copies, %d names", len(d.Plan.Slices), len(d.Plan.Record.Slices))
	}
	if want := "Service shop/web has 2002 EndpointSlices, of which the first 2000 by name are published"; !strings.Contains(d.Finding.Detail, want) || d.Retry {
		t.Errorf("says %q, retry %v", d.Finding.Detail, d.Retry)
	}
}
