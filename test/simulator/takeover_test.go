// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"testing"
	"time"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/agent"
)

// contended is a small world in which exports that claim to be older come often, and
// every cluster holds their takeovers: some until they are confirmed, some for a time.
func contended(source Source) Options {
	o := random(source)
	o.Clusters, o.Keys = ids("a", "b", "c"), keys("web")
	o.Steps = map[string]int{"user": 6, "hostile": 12, "later": 8, "confirm takeover": 8, "confirm": 2, "crash": 1, "part": 1, "heal": 3, "slip": 1, "skew": 3}
	o.TakeoverHolds = TakeoverHolds()[1:]
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
// confirmed all stands as it should.
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
		view            func(*decide.ImportView)
	}{
		{"lets the oldest export decide at once", "I7: ", func(v *decide.ImportView) { v.TakeoverHold = 0 }},
		{"takes every confirmation for that of the oldest export", "I7: ", func(v *decide.ImportView) {
			if v.Current.Import == nil || v.Current.Import.Annotations[model.AnnotationConfirmTakeover] == "" {
				return
			}
			v.Current.Import = v.Current.Import.DeepCopy()
			for i, e := range v.Exports {
				if i == 0 || e.CreatedAt.Before(v.Exports[0].CreatedAt) {
					v.Current.Import.Annotations[model.AnnotationConfirmTakeover] = string(e.UID)
				}
			}
		}},
		{"ends every hold at once", "I7: ", func(v *decide.ImportView) {
			v.TakeoverUntil = map[decide.ExportID]time.Time{}
			for _, e := range v.Exports {
				v.TakeoverUntil[decide.ExportID{Cluster: e.Cluster, UID: e.UID}] = v.Now
			}
		}},
		{"takes every import for a young one", "I7: ", func(v *decide.ImportView) { v.SettlesAt = v.Now.Add(time.Second) }},
		{"takes every member for one that was not read before", "I7: ", func(v *decide.ImportView) {
			v.FormedWithout = nil
			for _, m := range v.Members {
				v.FormedWithout = append(v.FormedWithout, m.ID)
			}
		}},
		{"hears no confirmation", "still held", func(v *decide.ImportView) {
			v.TakeoverHold = model.HoldUntilConfirmed
			if v.Current.Import != nil {
				v.Current.Import = v.Current.Import.DeepCopy()
				delete(v.Current.Import.Annotations, model.AnnotationConfirmTakeover)
			}
		}},
	} {
		t.Run(c.breaks, func(t *testing.T) {
			noticed(t, c.notices, func(seed uint64) error {
				o := contended(Seed(seed))
				o.Started = func(p *agent.Process) { p.Sabotage.View = c.view }
				w := New(o)
				return w.Run(func() { w.contend(); w.Check() })
			})
		})
	}
}
