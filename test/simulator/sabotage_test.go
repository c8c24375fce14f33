// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/test/simulator/agent"
)

// TestABrokenAgentIsNoticed breaks one thing in each process and asks that few
// seeds are enough to see it, and that it is called by its name.
func TestABrokenAgentIsNoticed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		breaks, notices string
		in              func(w func() *World, p *agent.Process)
	}{
		{"takes foreign Services and ServiceImports for its own", "I1: ", func(_ func() *World, p *agent.Process) {
			p.Sabotage.PlanInput = takeAllForManaged
		}},
		{"takes unread for empty", "I2: ", func(_ func() *World, p *agent.Process) {
			p.Sabotage.PlanInput = func(in *plan.ImportInput) { in.Unsynced = nil }
		}},
		{"writes each ServiceImport again whenever it looks", "still calling", func(_ func() *World, p *agent.Process) {
			p.Sabotage.Plan = writeAgain()
		}},
		{"writes to another cluster", "I4: ", func(w func() *World, p *agent.Process) {
			p.Client.Server = w().clusters["a"].Server
		}},
		{"forgets the last source cluster", "not as it should be", func(_ func() *World, p *agent.Process) {
			p.Sabotage.PlanInput = func(in *plan.ImportInput) {
				if d := in.Desired; d != nil && len(d.Constituents) > 1 {
					cut := *d
					cut.Constituents = d.Constituents[:len(d.Constituents)-1]
					in.Desired = &cut
				}
			}
		}},
	} {
		t.Run(c.breaks, func(t *testing.T) {
			const enough = 40
			for seed := range uint64(enough) {
				var w *World
				o := random(Seed(seed))
				o.Started = func(p *agent.Process) {
					if w != nil { // those of before run before there is a world to break
						c.in(func() *World { return w }, p)
					}
				}
				w = New(o)
				err := w.Run(func() { w.Live(150); w.Check() })
				if err != nil && strings.Contains(err.Error(), c.notices) {
					t.Logf("noticed after %d seeds: %s", seed+1, strings.Split(err.Error(), "\n")[0])
					return
				}
			}
			t.Errorf("an agent that %s was not noticed in %d seeds", c.breaks, enough)
		})
	}
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
