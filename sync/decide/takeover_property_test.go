// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// decidedByA is what the export of a decides of an import.
func decidedByA(i *model.Import, a model.Export) any {
	var ports []mcsv1beta1.ServicePort
	for _, p := range i.Ports {
		if slices.ContainsFunc(a.Ports, func(own mcsv1beta1.ServicePort) bool { return own.Name == p.Name }) {
			ports = append(ports, p)
		}
	}
	var served []mcsv1beta1.ServicePort
	for _, c := range i.Constituents {
		if c.Cluster == "a" {
			served = c.Ports
		}
	}
	return []any{i.Type, ports, served, i.IPFamilies, i.SessionAffinity, i.InternalTrafficPolicy, i.TrafficDistribution, i.PreferLocal, i.Labels, i.Annotations, i.Selector}
}

// drawHostile is anything that c may publish.
func drawHostile(t *rapid.T) model.Export {
	e := publishedBy("c", rapid.IntRange(0, 59).Draw(t, "created"), rapid.SampledFrom([]string{"http", "x", "metrics"}).Draw(t, "port"))
	e.UID = types.UID(rapid.SampledFrom([]string{"of-c", "c-2", "of-a"}).Draw(t, "uid"))
	e.Ports[0].Port = rapid.SampledFrom([]int32{80, 81, 9090}).Draw(t, "number")
	if rapid.Bool().Draw(t, "headless") {
		e.Type = mcsv1beta1.Headless
	}
	if rapid.Bool().Draw(t, "affinity") {
		e.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if rapid.Bool().Draw(t, "labels") {
		e.Labels, e.Annotations = map[string]string{"l": "c"}, map[string]string{model.AnnotationConfirmTakeover: "of-c"}
	}
	e.PreferLocal = rapid.Bool().Draw(t, "prefer")
	e.IPFamilies = rapid.SampledFrom([][]corev1.IPFamily{nil, {"IPv4"}, {"IPv6"}, {"IPv6", "IPv4"}}).Draw(t, "families")
	return e
}

// FAULT 28: without a confirmation, nothing that c alone does changes what the
// standing export of a decides, or removes an endpoint of a. c publishes anything,
// withdraws, loses its record, is unread, and the importer restarts, in any order.
func TestNoMemberTakesWhatIsAnothersFAULT28(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := publishedBy("a", 30, "http", func(e *model.Export) { e.IPFamilies = []corev1.IPFamily{"IPv4"} })
		d := publishedBy("d", 40, "metrics", func(e *model.Export) { e.Ports[0].Port = 9090 })
		endpoints := []*discoveryv1.EndpointSlice{{}}
		w := &imports{current: plan.Current{Import: importedFrom(a, d)}, formedWithout: nil}
		first := w.step(takeoverView(nil, a, d), endpoints)
		want := decidedByA(first.Finding.Resolved, a)
		metrics := first.Finding.Resolved.Ports
		for i := range rapid.IntRange(1, 8).Draw(t, "steps") {
			v := takeoverView(nil, a, d)
			v.Now = v.Now.Add(time.Duration(i) * time.Minute)
			switch rapid.IntRange(0, 4).Draw(t, "what c does") {
			case 0: // it withdraws, or never exported
			case 1: // its record is lost, which is held if something of it exists
				if slices.ContainsFunc(Standing(w.current, "b"), func(s model.SourceExport) bool { return s.Cluster == "c" }) {
					v.Held = []model.Hold{{Cluster: "c"}}
				}
			case 2:
				v.Members[1].Synced = false
			default:
				v.Exports = append(v.Exports, drawHostile(t))
			}
			if rapid.Bool().Draw(t, "restarted") {
				w.formedWithout = nil
			}
			got := w.step(v, endpoints)
			if len(v.Held) > 0 || slices.Contains(got.Plan.Unsynced, "c") && slices.ContainsFunc(Standing(w.current, "b"), func(s model.SourceExport) bool { return s.Cluster == "c" }) {
				continue // nothing of the import is changed
			}
			if diff := cmp.Diff(want, decidedByA(got.Finding.Resolved, a)); diff != "" {
				t.Fatalf("what a decides changed (-before +after):\n%s", diff)
			}
			for _, p := range metrics {
				if !slices.ContainsFunc(got.Finding.Resolved.Ports, func(q mcsv1beta1.ServicePort) bool { return q.Name == p.Name && q.Port == p.Port }) {
					t.Fatalf("port %s of the standing exports changed: %v", p.Name, got.Finding.Resolved.Ports)
				}
			}
			if len(got.Plan.Sources["a"]) != 1 {
				t.Fatal("the endpoints of a are gone")
			}
		}
	})
}

// imports remembers of one import what the cluster does.
type imports struct {
	current       plan.Current
	formedWithout []model.ClusterID
}

func (w *imports) step(v ImportView, endpoints []*discoveryv1.EndpointSlice) ImportDecision {
	v.Current, v.FormedWithout = w.current, w.formedWithout
	v.Slices = map[model.ClusterID][]*discoveryv1.EndpointSlice{"a": endpoints}
	d := Import(v)
	w.formedWithout = d.FormedWithout
	kept := slices.ContainsFunc(Standing(w.current, "b"), func(s model.SourceExport) bool { return slices.Contains(d.Plan.Unsynced, s.Cluster) })
	if kept {
		return d // package plan does not change the ServiceImport
	}
	var of []model.SourceExport
	for _, c := range d.Plan.Desired.Constituents {
		of = append(of, model.SourceExport{Cluster: c.Cluster, UID: c.UID, CreatedAt: c.CreatedAt})
	}
	next := importedFrom()
	next.Annotations = map[string]string{model.AnnotationExports: model.FormatSourceExports(of)}
	for key, value := range d.Plan.History {
		next.Annotations[key] = value
	}
	w.current.Import = next
	return d
}
