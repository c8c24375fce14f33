// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"testing"
	"time"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/test/simulator/agent"
)

// crowded is a small world in which members often publish more than the limits of the
// others.
func crowded(source Source) Options {
	o := random(source)
	o.Steps = map[string]int{"user": 20, "flood": 10, "crash": 3, "gone": 3, "later": 1, "part": 1, "heal": 2, "slip": 1, "confirm": 1, "backup": 1, "restore": 1}
	o.Limits = Limits()[1:]
	return o
}

// TestLimits lets members publish too much: I5 and I8 hold, and once they leave the
// excess all stands as it should.
func TestLimits(t *testing.T) {
	t.Parallel()
	each(t, 60, func(seed uint64) error {
		w := New(crowded(Seed(seed)))
		return w.Run(func() { w.Live(150); w.Check() })
	})
}

func TestAnAgentThatBreaksLimitsIsNoticed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		breaks, notices string
		in              func(*agent.Process)
	}{
		{"reads whatever members publish", "I8: ", func(p *agent.Process) { p.Limits = budget.Limits{} }},
		{"names no limit", "does not say that cluster", func(p *agent.Process) {
			p.Sabotage.View = eachPeer(func(p *exchange.Published) { p.Problems = nil })
		}},
		{"takes a member that exceeds a limit for one that exports nothing", "I2: ", func(p *agent.Process) {
			p.Sabotage.View = eachPeer(func(p *exchange.Published) {
				if len(p.Problems) > 0 {
					p.Export, p.Withdrawals = nil, []model.Withdrawal{{UID: "later", CreatedAt: time.Now()}}
				}
			})
		}},
	} {
		t.Run(c.breaks, func(t *testing.T) {
			noticed(t, c.notices, func(seed uint64) error {
				o := crowded(Seed(seed))
				o.Started = c.in
				w := New(o)
				return w.Run(func() { w.Live(150); w.Check() })
			})
		})
	}
}
