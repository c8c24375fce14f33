// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// source is an entry of a list; each one is a minute older than the next.
type source struct {
	cluster model.ClusterID
	state   model.SourceState
}

func imported(service string, conditions []string, sources ...source) mcsv1beta1.ServiceImport {
	namespace, name, _ := strings.Cut(service, "/")
	list := model.List{Formed: time.Unix(1_800_000_000, 0)}
	for i, s := range sources {
		list.Entries = append(list.Entries, model.Entry{
			SourceExport: model.SourceExport{Cluster: s.cluster, UID: "uid", CreatedAt: time.Unix(1_700_000_000-60*int64(i), 0)}, Absent: s.state, Since: time.Unix(1_800_000_000, 0),
		})
	}
	out := mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{model.AnnotationList: list.String()}}}
	for _, c := range conditions {
		out.Status.Conditions = append(out.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
	}
	return out
}

func cluster(id string, state status.State, peers ...status.Peer) status.Cluster {
	return status.Cluster{Context: "context-" + id, ID: id, State: state, Peers: peers}
}

func connected(id string) status.Peer { return status.Peer{ID: id, State: status.Connected} }

// published is a record of a of an export in namespace shop.
func published(name string, to model.ClusterID) confirm.Record {
	record := &exchangev1alpha1.ExportRecord{Spec: exchangev1alpha1.ExportRecordSpec{Service: exchangev1alpha1.ServiceReference{Namespace: "shop", Name: name}}}
	return confirm.Record{From: "a", To: to, ExportRecord: record}
}

// clusterset has three members, of which c is lost and not read.
func clusterset() (status.Report, []status.Objects) {
	report := status.Report{
		Clusters: []status.Cluster{
			cluster("a", status.Running, connected("b"), status.Peer{ID: "c", State: status.Lost}),
			cluster("b", status.Degraded, connected("a"), status.Peer{ID: "c", State: status.Lost}),
			{Context: "hub", State: status.Hub},
		},
		Services: []status.Service{
			{Kind: "ServiceExport", Cluster: "a", Namespace: "shop", Name: "cart", Conditions: []metav1.Condition{{Type: "Conflict", Status: metav1.ConditionTrue}}},
			{Kind: "ServiceExport", Cluster: "a", Namespace: "shop", Name: "web", Conditions: []metav1.Condition{{Type: "Conflict", Status: metav1.ConditionFalse}}},
		},
	}
	return report, []status.Objects{
		{
			ID: "a",
			Imports: []mcsv1beta1.ServiceImport{
				imported("shop/db", []string{"Frozen"}, source{"c", ""}, source{"a", ""}),
			},
			Published: []confirm.Record{published("web", ""), published("cart", ""), published("mail", ""), published("pay", "b"), published("queue", "b")},
		},
		{
			ID: "b",
			Imports: []mcsv1beta1.ServiceImport{
				imported("shop/web", nil, source{"a", ""}),
				imported("shop/cart", []string{"TakeoverHeld"}, source{"c", model.SourceMissing}, source{"a", ""}),
				imported("shop/mail", nil, source{"a", ""}),
				imported("shop/pay", nil, source{"a", ""}, source{"b", ""}),
			},
		},
		{ID: "c", Err: errors.New("no answer")}, // of a cluster that does not answer
	}
}

func TestBuild(t *testing.T) {
	report, views := clusterset()
	want := Graph{
		Clusters: map[string][]string{"a": nil, "b": {"Degraded"}, "c": {"Lost in a", "Lost in b"}},
		Edges: []*Edge{
			{"a", "b", map[string][]string{"shop/cart": {"TakeoverHeld", "Conflict"}, "shop/mail": {}, "shop/pay": {}, "shop/queue": {"NotImported"}, "shop/web": {}}},
			{"a", "c", map[string][]string{"shop/cart": {"Conflict"}, "shop/mail": {}, "shop/web": {}}},
			{"c", "a", map[string][]string{"shop/db": {"Frozen"}}},
			{"c", "b", map[string][]string{"shop/cart": {"Missing", "Conflict"}}},
		},
	}
	got := build(report, views)
	if diff := cmp.Diff(want, Graph{Clusters: got.Clusters, Edges: got.Edges}, cmp.AllowUnexported(Graph{})); diff != "" {
		t.Error(diff)
	}
}

func TestImportsOfAnotherImplementation(t *testing.T) {
	i := mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: mcsv1beta1.ServiceImportStatus{Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "a"}, {Cluster: "b"}}}}
	got := build(status.Report{Clusters: []status.Cluster{{Context: "b", State: status.NotInstalled}}}, []status.Objects{{ID: "b", Imports: []mcsv1beta1.ServiceImport{i}}})
	if diff := cmp.Diff([]*Edge{{"a", "b", map[string][]string{"shop/web": {}}}}, got.Edges); diff != "" {
		t.Error(diff)
	}
}

func TestAnImportThatALaterTierServesIsMarked(t *testing.T) {
	i := imported("shop/web", []string{"Available"}, source{"a", ""})
	i.Status.Conditions[0].Reason = condition.ReasonLaterTier
	got := build(status.Report{}, []status.Objects{{ID: "b", Imports: []mcsv1beta1.ServiceImport{i}}})
	if diff := cmp.Diff([]*Edge{{"a", "b", map[string][]string{"shop/web": {"LaterTier"}}}}, got.Edges); diff != "" {
		t.Error(diff)
	}
}

// Nothing else names the members where a hub is the only context.
func TestTheClustersOfAHubAreThoseOfItsRecords(t *testing.T) {
	ofX, withdrawn := published("mail", ""), published("old", "y")
	ofX.From, withdrawn.Spec.Withdrawn = "x", true
	report := status.Report{Clusters: []status.Cluster{{Context: "hub", State: status.Hub}}}
	got := build(report, []status.Objects{{ID: "hub", Published: []confirm.Record{published("web", ""), published("pay", "b"), ofX, withdrawn}}})
	want := []*Edge{
		{"a", "b", map[string][]string{"shop/pay": {}, "shop/web": {}}},
		{"a", "x", map[string][]string{"shop/web": {}}},
		{"x", "a", map[string][]string{"shop/mail": {}}},
		{"x", "b", map[string][]string{"shop/mail": {}}},
	}
	if diff := cmp.Diff(want, got.Edges); diff != "" {
		t.Error(diff)
	}
}

func TestTheOrderOfWhatWasReadDoesNotMatter(t *testing.T) {
	report, views := clusterset()
	first := build(report, views)
	for range 1000 {
		report, views := clusterset()
		rand.Shuffle(len(views), func(i, j int) { views[i], views[j] = views[j], views[i] })
		rand.Shuffle(len(report.Clusters), func(i, j int) {
			report.Clusters[i], report.Clusters[j] = report.Clusters[j], report.Clusters[i]
		})
		for _, v := range views {
			rand.Shuffle(len(v.Imports), func(i, j int) { v.Imports[i], v.Imports[j] = v.Imports[j], v.Imports[i] })
			rand.Shuffle(len(v.Published), func(i, j int) { v.Published[i], v.Published[j] = v.Published[j], v.Published[i] })
		}
		again := build(report, views)
		if again.write(dot) != first.write(dot) || again.write(mermaid) != first.write(mermaid) {
			t.Fatalf("%s\nand\n%s", first.write(dot), again.write(dot))
		}
	}
}

func TestWrite(t *testing.T) {
	report, views := clusterset()
	g := build(report, views)
	const wantDOT = `digraph clusterset {
  rankdir=LR;
  node [shape=box];
  c0 [label="a"];
  c1 [label="b\nDegraded", color=red];
  c2 [label="c\nLost in a\nLost in b", color=red];
  c0 -> c1 [label="shop/cart (TakeoverHeld, Conflict)\nshop/queue (NotImported)\nshop/mail\nand 2 more", color=red];
  c0 -> c2 [label="shop/cart (Conflict)\nshop/mail\nshop/web", color=red];
  c2 -> c0 [label="shop/db (Frozen)", color=red];
  c2 -> c1 [label="shop/cart (Missing, Conflict)", color=red];
}
`
	if diff := cmp.Diff(wantDOT, g.write(dot)); diff != "" {
		t.Error(diff)
	}
	const wantMermaid = `flowchart LR
  classDef bad stroke:red
  c0["a"]
  c1["b<br/>Degraded"]:::bad
  c2["c<br/>Lost in a<br/>Lost in b"]:::bad
  c0 ==>|"shop/cart (TakeoverHeld, Conflict)<br/>shop/queue (NotImported)<br/>shop/mail<br/>and 2 more"| c1
  c0 ==>|"shop/cart (Conflict)<br/>shop/mail<br/>shop/web"| c2
  c2 ==>|"shop/db (Frozen)"| c0
  c2 ==>|"shop/cart (Missing, Conflict)"| c1
`
	if diff := cmp.Diff(wantMermaid, g.write(mermaid)); diff != "" {
		t.Error(diff)
	}
	var out bytes.Buffer
	g.print(command.NewEnv(genericiooptions.IOStreams{Out: &out, ErrOut: &out}))
	const wantTable = `FROM   TO   COUNT   SERVICES
a      b    5       shop/cart (TakeoverHeld, Conflict), shop/queue (NotImported), shop/mail, and 2 more
a      c    3       shop/cart (Conflict), shop/mail, shop/web
c      a    1       shop/db (Frozen)
c      b    1       shop/cart (Missing, Conflict)
Cluster b: Degraded
Cluster c: Lost in a, Lost in b
`
	if diff := cmp.Diff(wantTable, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestNamesAreEscaped(t *testing.T) {
	g := Graph{
		Clusters: map[string][]string{`a"];x`: {`b\"`}, "kubernetes-admin@b": nil},
		Edges:    []*Edge{{`a"];x`, "kubernetes-admin@b", map[string][]string{"n/<b>`|": {}, "ä\n": {}}}},
	}
	const wantDOT = `digraph clusterset {
  rankdir=LR;
  node [shape=box];
  c0 [label="a\"];x\nb\\\"", color=red];
  c1 [label="kubernetes-admin@b"];
  c0 -> c1 [label="n/<b>` + "`|" + `\nä\n"];
}
`
	if diff := cmp.Diff(wantDOT, g.write(dot)); diff != "" {
		t.Error(diff)
	}
	const wantMermaid = `flowchart LR
  classDef bad stroke:red
  c0["a#34;#93;#59;x<br/>b#92;#34;"]:::bad
  c1["kubernetes-admin#64;b"]
  c0 -->|"n/#60;b#62;#96;#124;<br/>#228;#10;"| c1
`
	if diff := cmp.Diff(wantMermaid, g.write(mermaid)); diff != "" {
		t.Error(diff)
	}
}
