// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/test/simulator/agent"
)

// contended is a small world in which exports that claim to be older come often.
func contended(source Source) Options {
	o := random(source)
	o.Clusters, o.Keys, o.Limits = ids("a", "b", "c"), keys("web"), nil
	o.Steps = map[string]int{"user": 6, "hostile": 12, "later": 8, "confirm takeover": 8, "confirm": 2, "crash": 1, "part": 1, "heal": 3, "slip": 1, "skew": 3, "absent": 1, "join": 3}
	return o
}

// contend lets exports contend for an import that one cluster has decided for a while.
func (w *World) contend() {
	w.calm = true
	w.exports(w.cluster(), w.opts.Keys[0], 2)
	w.rounds()
	w.calm = false
	w.happen("later", w.cluster())
	w.Live(150)
	late := w.cluster() // whose export is an hour older in the end
	late.Skew = -time.Hour
	service := serviceOf(w.opts.Keys[0], port("http", 84))
	w.drop(late, "ServiceExport", w.opts.Keys[0])
	w.drop(late, "Service", w.opts.Keys[0])
	w.put(late, service)
	w.put(late, exportOf(w.opts.Keys[0]))
}

// TestTakeovers lets exports contend: I5 and I7 hold, and once what is held was
// confirmed all is as it should be.
func TestTakeovers(t *testing.T) {
	t.Parallel()
	each(t, 60, func(seed uint64) error {
		w := New(contended(Seed(seed)))
		return w.Run(func() { w.contend(); w.Check() })
	})
}

func TestAnAgentThatDoesNotHoldTakeoversIsNoticed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		breaks, notices string
		in              agent.Sabotage
	}{
		{"lets the oldest export decide at once", "I7: ", agent.Sabotage{Import: func(d *decide.ImportDecision) {
			d.Plan.List.Entries = slices.Clone(d.Plan.List.Entries)
			slices.SortStableFunc(d.Plan.List.Entries, func(a, b model.Entry) int { return a.CreatedAt.Compare(b.CreatedAt) })
		}}},
		{"takes every list for a new one", "I7: ", agent.Sabotage{View: func(v *decide.ImportView) { formed(v, v.Now.Add(-time.Second)) }}},
		{"changes what is frozen", "I7: ", agent.Sabotage{Import: func(d *decide.ImportDecision) {
			if d.Plan.Frozen && d.Finding.Import != nil {
				d.Plan.Frozen, d.Plan.Desired = false, d.Finding.Import
			}
		}}},
		{"hears no confirmation", "was confirmed", agent.Sabotage{View: func(v *decide.ImportView) {
			if v.Current.Import != nil {
				v.Current.Import = v.Current.Import.DeepCopy()
				delete(v.Current.Import.Annotations, model.AnnotationConfirmTakeover)
			}
		}}},
	} {
		t.Run(c.breaks, func(t *testing.T) {
			noticed(t, c.notices, func(seed uint64) error {
				o := contended(Seed(seed))
				o.Started = func(p *agent.Process) { p.Sabotage = c.in }
				w := New(o)
				return w.Run(func() { w.contend(); w.Check() })
			})
		})
	}
}

// formed changes when the list of an import formed.
func formed(v *decide.ImportView, then time.Time) {
	change := func(o client.Object) {
		if list, err := model.ParseList(o.GetAnnotations()[model.AnnotationList]); err == nil {
			list.Formed = then.Truncate(time.Second)
			o.GetAnnotations()[model.AnnotationList] = list.String()
		}
	}
	services := make([]*corev1.Service, len(v.Current.Services))
	for i, s := range v.Current.Services {
		services[i] = s.DeepCopy()
		change(services[i])
	}
	if v.Current.Services = services; v.Current.Import != nil {
		v.Current.Import = v.Current.Import.DeepCopy()
		change(v.Current.Import)
	}
	v.List = plan.StoredList(v.Current, v.Local.Key)
}
