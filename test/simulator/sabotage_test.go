// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/test/simulator/agent"
)

// TestABrokenAgentIsNoticed breaks one thing in each process and asks that few
// seeds are enough to see it, and that it is called by its name.
func TestABrokenAgentIsNoticed(t *testing.T) {
	t.Parallel()
	const different = "not as it should be"
	for _, c := range []struct {
		breaks, notices string
		in              func(w func() *World, p *agent.Process)
	}{
		{"takes foreign Services and ServiceImports for its own", "I1: ", func(_ func() *World, p *agent.Process) {
			p.Sabotage.PlanInput = takeAllForManaged
		}},
		{"writes each ServiceImport again whenever it looks", "still calling", func(_ func() *World, p *agent.Process) {
			p.Sabotage.Plan = writeAgain()
		}},
		{"writes to another cluster", "I4: ", func(w func() *World, p *agent.Process) {
			p.Client.Server = w().clusters["a"].Server
		}},
		{"takes a member that was not read for one that was removed", "I2: ", func(_ func() *World, p *agent.Process) {
			p.Sabotage.View = eachPeer(func(p *exchange.Published) { p.Synced, p.Removed = true, p.Removed || !p.Synced })
		}},
		{"decides that nothing is unsynced", "I2: ", func(_ func() *World, p *agent.Process) {
			p.Sabotage.Import = func(d *decide.ImportDecision) { d.Plan.Unsynced = nil }
		}},
		{"decides that what is missing was withdrawn", "I2: ", func(_ func() *World, p *agent.Process) {
			p.Sabotage.View = eachPeer(func(p *exchange.Published) {
				if p.Synced && p.Export == nil && len(p.Withdrawals) == 0 {
					p.Withdrawals = []model.Withdrawal{{UID: "later", CreatedAt: time.Now()}}
				}
			})
		}},
		{"takes a Peer that is absent for one that was removed", "I2: ", func(_ func() *World, p *agent.Process) {
			p.Sabotage.View = eachPeer(func(p *exchange.Published) { p.Removed = p.Removed || !p.Known })
		}},
		{"decides without the last source cluster", different, func(_ func() *World, p *agent.Process) {
			p.Sabotage.Import = func(d *decide.ImportDecision) {
				if desired := d.Plan.Desired; desired != nil && len(desired.Constituents) > 1 {
					cut := *desired
					cut.Constituents = desired.Constituents[:len(desired.Constituents)-1]
					d.Plan.Desired = &cut
				}
			}
		}},
		{"decides that some imports are not to be written", different, func(_ func() *World, p *agent.Process) {
			p.Sabotage.Import = func(d *decide.ImportDecision) { d.Write = d.Write && d.Plan.Key.Name != "svc-adb" }
		}},
		{"decides that a member is lost that answers", different, func(_ func() *World, p *agent.Process) {
			p.Sabotage.Import = func(d *decide.ImportDecision) {
				d.Plan.Traffic = map[model.ClusterID]model.Traffic{"b": model.LastResort}
			}
		}},
		{"decides to publish nothing", different, func(_ func() *World, p *agent.Process) {
			p.Sabotage.Export = func(d *decide.ExportDecision) { d.Plan.Record = nil }
		}},
		{"decides to withdraw while policies cannot be evaluated", "I2: ", func(_ func() *World, p *agent.Process) {
			p.Sabotage.Export = func(d *decide.ExportDecision) {
				if d.Finding.Publication == model.PublicationPending {
					d.Plan.Record = nil
				}
			}
		}},
		{"decides to publish for every member what is for some", different, func(_ func() *World, p *agent.Process) {
			p.Sabotage.Export = func(d *decide.ExportDecision) {
				if d.Finding.Publication == model.Published {
					d.Plan.Audience = []string{model.ExchangeNamespace(p.ID)}
				}
			}
		}},
		{"decides to publish a port that is not shared", "which it does not share", func(_ func() *World, p *agent.Process) {
			p.Sabotage.Export = func(d *decide.ExportDecision) {
				if d.Plan.Record != nil && len(d.Plan.Record.Ports) > 0 && d.Plan.Record.Ports[0].Name == "http" {
					spec := *d.Plan.Record
					spec.Ports = append(slices.Clone(spec.Ports[:1]), mcsv1beta1.ServicePort{Name: "admin", Port: 90, Protocol: corev1.ProtocolTCP})
					d.Plan.Record = &spec
				}
			}
		}},
	} {
		t.Run(c.breaks, func(t *testing.T) {
			noticed(t, c.notices, func(seed uint64) error {
				var w *World
				o := random(Seed(seed))
				o.Limits = nil // I8 would notice some of it first
				o.Steps["flood"], o.Steps["crash"], o.Steps["absent"] = 0, 8, 8
				o.Started = func(p *agent.Process) {
					if w != nil { // those of before run before there is a world to break
						c.in(func() *World { return w }, p)
					}
				}
				w = New(o)
				return w.Run(func() { w.Live(150); w.Check() })
			})
		})
	}
}

// eachPeer changes what an import knows of each other cluster.
func eachPeer(change func(*exchange.Published)) func(*decide.ImportView) {
	return func(v *decide.ImportView) {
		v.Peers = slices.Clone(v.Peers)
		for i := range v.Peers {
			change(&v.Peers[i])
		}
	}
}

// noticed runs a broken world until a seed fails as it should.
func noticed(t *testing.T, notices string, run func(seed uint64) error) {
	t.Helper()
	const enough = 300
	for seed := range uint64(enough) {
		if err := run(seed); err != nil && strings.Contains(err.Error(), notices) {
			t.Logf("noticed after %d seeds: %s", seed+1, strings.Split(err.Error(), "\n")[0])
			return
		}
	}
	t.Errorf("not noticed in %d seeds", enough)
}

// takeAllForManaged lets every Service and ServiceImport look as if Comity had
// applied it.
func takeAllForManaged(in *plan.ImportInput) {
	ours := []metav1.ManagedFieldsEntry{{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply}}
	var services []*corev1.Service
	for _, s := range in.Current.Services {
		s = s.DeepCopy()
		s.ManagedFields = ours
		services = append(services, s)
	}
	in.Current.Services = services
	if in.Current.Import != nil {
		in.Current.Import = in.Current.Import.DeepCopy()
		in.Current.Import.ManagedFields = ours
	}
}

// writeAgain asks for one more write in every plan that applies an import, by a
// label that is never the same.
func writeAgain() func(*plan.ImportPlan) {
	count := 0
	return func(out *plan.ImportPlan) {
		for i, a := range out.Actions {
			if a.Verb != plan.Delete {
				count++
				o, _ := a.Object.DeepCopyObject().(plan.Object)
				annotations := map[string]string{}
				for key, value := range o.GetAnnotations() {
					annotations[key] = value
				}
				annotations[model.AnnotationApplied] = strings.Repeat("x", count)
				o.SetAnnotations(annotations)
				out.Actions[i].Object = o
			}
		}
	}
}
