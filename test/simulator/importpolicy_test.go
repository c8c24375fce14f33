// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"testing"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/test/simulator/agent"
)

// governed is a small world in which import policies change often, beside these steps.
func governed(source Source, steps map[string]int) Options {
	o := random(source)
	o.Steps = steps
	o.Steps["import policy"] = 40
	return o
}

// TestImportPolicies lets everything happen while import policies change: I2, I5 and
// I6 hold, and once every import is allowed all stands as it should.
func TestImportPolicies(t *testing.T) {
	t.Parallel()
	each(t, 100, func(seed uint64) error {
		w := New(governed(Seed(seed), Everything()))
		return w.Run(func() { w.Live(200); w.Check() })
	})
}

func TestAnAgentThatIgnoresImportPoliciesIsNoticed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		breaks, notices string
		view            func(*decide.ImportView)
	}{
		{"removes what they could not evaluate", "I2: ", eachPeer(func(p *exchange.Published) {
			if p.Verdict != nil && p.Verdict.Outcome == decision.NotEvaluated {
				p.Verdict = &decision.Verdict{Outcome: decision.Denied}
			}
		})},
		{"imports what they deny", "I6: ", eachPeer(func(p *exchange.Published) { p.Verdict = nil })},
	} {
		t.Run(c.breaks, func(t *testing.T) {
			noticed(t, c.notices, func(seed uint64) error {
				o := governed(Seed(seed), map[string]int{"user": 40, "crash": 2})
				o.Started = func(p *agent.Process) { p.Sabotage.View = c.view }
				w := New(o)
				return w.Run(func() { w.Live(200); w.Check() })
			})
		})
	}
}
