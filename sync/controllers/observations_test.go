// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

func TestAnObservationIsWholeOrNotThere(t *testing.T) {
	o := NewObservations("a")
	if _, ok := o.Get(key("web")); ok {
		t.Error("known before anything was found")
	}
	o.Import(key("web"), &decide.ImportFinding{Exported: true})
	if _, ok := o.Get(key("web")); ok {
		t.Error("known although nothing is known of its publication")
	}
	o.Publish(key("web"), &decide.ExportFinding{Publication: model.Published, Scope: model.ScopeAll()})
	if seen, ok := o.Get(key("web")); !ok || seen.Publication != model.Published || !seen.Scope.All() {
		t.Errorf("got %+v, %v", seen, ok)
	}
	o.Publish(key("web"), nil)
	o.Import(key("web"), &decide.ImportFinding{Observation: model.Observation{Import: &model.Import{}}})
	if seen, ok := o.Get(key("web")); !ok || seen.Publication != model.PublicationNone {
		t.Errorf("an import without local export: %+v, %v", seen, ok)
	}
}

func TestOnlyADifferentObservationIsNotified(t *testing.T) {
	o := NewObservations("a")
	var notified, ofImport []string
	o.Changed.Subscribe(func(c notify.Change) { notified = append(notified, c.Key.Name) })
	o.ImportChanged.Subscribe(func(c notify.Change) { ofImport = append(ofImport, c.Key.Name) })
	since := time.Now()
	found := func(in *time.Location) *decide.ImportFinding {
		return &decide.ImportFinding{Exported: true, Observation: model.Observation{Freeze: &model.Freeze{By: model.Source{Since: since.In(in)}}, Sources: []model.Source{{Cluster: "b", Since: since.In(in)}}}}
	}
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"a first finding", func() { o.Import(key("web"), found(time.UTC)) }, []string{"web"}},
		{"the same finding, its time in another zone", func() { o.Import(key("web"), found(time.FixedZone("x", 3600))) }, nil},
		{"another finding of the same key", func() { o.Publish(key("web"), &decide.ExportFinding{Publication: model.Published}) }, []string{"web"}},
		{"the time of its withdrawal", func() {
			o.Publish(key("web"), &decide.ExportFinding{Publication: model.Published, WithdrawnAt: since})
		}, []string{"web"}},
		{"the same time in another zone", func() {
			o.Publish(key("web"), &decide.ExportFinding{Publication: model.Published, WithdrawnAt: since.In(time.FixedZone("x", 3600))})
		}, nil},
		{"nothing found where nothing was known", func() { o.Import(key("none"), &decide.ImportFinding{}) }, nil},
		{"a finding about the own export alone", func() {
			o.Import(key("own"), &decide.ImportFinding{Exported: true, Observation: model.Observation{Sources: []model.Source{{Cluster: "a"}}}})
		}, []string{"own"}},
		{"a finding that is gone", func() { o.Publish(key("web"), nil) }, []string{"web"}},
	} {
		notified = nil
		step.do()
		if diff := cmp.Diff(step.want, notified); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	if diff := cmp.Diff([]string{"web"}, ofImport); diff != "" {
		t.Errorf("what was found of an import with others changed once (-want +got):\n%s", diff)
	}
	if got := o.From("b", func(model.Source) bool { return true }); len(got) != 1 || got[0] != key("web") {
		t.Errorf("b contributes to %v, want to web alone", got)
	}
}

func TestImportsAreCountedByTheClusterThatTheyWaitFor(t *testing.T) {
	o, registry := NewObservations("a"), prometheus.NewRegistry()
	o.Import(key("web"), &decide.ImportFinding{Exists: true, Observation: model.Observation{
		Sources: []model.Source{{Cluster: "b", State: model.SourceMissing, Unready: 3}, {Cluster: "c", State: model.SourcePublished}},
		Freeze:  &model.Freeze{By: model.Source{Cluster: "b"}},
	}})
	o.Import(key("db"), &decide.ImportFinding{Exists: true, Observation: model.Observation{
		Sources:   []model.Source{{Cluster: "b", State: model.SourceMissing, Unready: 2}},
		Takeovers: []model.Takeover{{By: model.SourceExport{Cluster: "c"}}},
	}})
	(&Controllers{&base{observations: o}}).Count(func(name, help string, labels ...string) *prometheus.GaugeVec {
		gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		registry.MustRegister(gauge)
		return gauge
	})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = m.GetGauge().GetValue()
		}
	}
	if diff := cmp.Diff(map[string]float64{
		"comity_import_sources b Missing": 2, "comity_import_sources c Published": 1, "comity_imports_frozen b": 1, "comity_takeovers_held c": 1,
		"comity_withdrawn_endpoints b": 5, "comity_withdrawn_endpoints c": 0,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// subscribedPeers notify of changes.
type subscribedPeers struct {
	Peers
	changes notify.Topic[model.MemberChange]
}

func (p *subscribedPeers) Subscribe(subscriber func(model.MemberChange)) (cancel func()) {
	return p.changes.Subscribe(subscriber)
}

func TestAReportConcernsItsExportOrAll(t *testing.T) {
	peers := &subscribedPeers{}
	b := &base{Options: Options{Peers: peers}}
	b.onMembers(changesReports...)(b.reportsChanged.Publish)
	var notified []string
	b.reportsChanged.Subscribe(func(c notify.Change) { notified = append(notified, c.Key.String()) })
	peers.changes.Publish(model.MemberChange{ID: "b", What: model.ReportChanged, Key: key("web")})
	peers.changes.Publish(model.MemberChange{ID: "b", What: model.ReportChanged})
	peers.changes.Publish(model.MemberChange{ID: "b", What: model.ExportChanged, Key: key("web")})
	peers.changes.Publish(model.MemberChange{ID: "b", What: model.HeartbeatFirst})
	peers.changes.Publish(model.MemberChange{ID: "b", What: model.HeartbeatMissing})
	if diff := cmp.Diff([]string{key("web").String(), "/", "/"}, notified); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatIsMissingOfAClusterIsCountedAsLongAsItIs(t *testing.T) {
	o := NewObservations("a")
	counts := &Controllers{&base{observations: o}}
	found := func(state model.SourceState) *decide.ImportFinding {
		return &decide.ImportFinding{Exists: true, Observation: model.Observation{Sources: []model.Source{{Cluster: "b", State: state}, {Cluster: "c", State: model.SourcePublished}}}}
	}
	first, second := types.NamespacedName{Namespace: "shop", Name: "a"}, types.NamespacedName{Namespace: "shop", Name: "b"}
	o.Import(first, found(model.SourcePublished))
	o.Import(second, found(model.SourceMissing))
	if got := counts.Counts("b"); got.Missing != 1 || got.FirstMissing != second {
		t.Errorf("counted %+v", got)
	}
	o.Import(first, found(model.SourceMissing))
	if got := counts.Counts("b"); got.Missing != 2 || got.FirstMissing != first || counts.Counts("c").Missing != 0 {
		t.Errorf("counted %+v", got)
	}
	o.Import(first, nil)
	o.Import(second, found(model.SourcePublished))
	if got := counts.Counts("b"); got != (model.ImportCounts{}) {
		t.Errorf("counted %+v", got)
	}
}
