// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// chooser makes every choice of a run.
type chooser func(n int, what string) int

// happen lets one thing happen to one source, or here.
func (w *world) happen(n chooser) {
	c := w.order()[n(3, "cluster")]
	if c.removed && n(2, "joins again") == 0 {
		c.removed = false
	}
	switch n(25, "what") {
	case 0, 1, 2:
		w.publish(c, n)
	case 3, 4:
		w.withdraw(c, n)
	case 5: // deleted and created
		w.withdraw(c, n)
		w.publish(c, n)
	case 6, 22, 23:
		c.statements, c.lost = nil, n(3, "record is lost") > 0
	case 7, 8:
		c.read = !c.read
	case 9:
		c.refused = !c.refused
	case 10:
		c.denied = !c.denied
	case 11:
		c.undecided = !c.undecided
	case 12:
		c.member = !c.member
	case 13:
		c.removed = !c.removed && c.id != self
	case 14, 24:
		c.confirmed = w.now - []int{0, 0, 60, -60}[n(4, "before")]
	case 15:
		w.takeover(c, n)
	case 16:
		w.drop(n)
	case 17:
		c.version++
	case 18:
		c.forget(n)
	default:
		w.now += []int{1, 20, 61, 130, 3600, -3600}[n(6, "passes")]
	}

}

// publish creates, changes or brings back an export.
func (w *world) publish(c *cluster, n chooser) {
	p := Properties{Headless: n(3, "headless") == 0, Port: 80 + n(2, "port"), Affinity: n(3, "affinity") == 0}
	if c.id == self { // its own age is the API server's
		p.Affinity = p.Affinity && !p.Headless
	}
	c.lost = false
	c.version++
	if c.export != nil && (len(c.statements) == 0 || c.statements[0].Suspended) && n(2, "another") == 0 {
		c.statements = nil
		if c.export.Scoped = c.id != self && n(4, "scoped") == 0; n(2, "changes") == 0 {
			c.export.Properties = p
		}
		return
	}
	c.uids++
	created := []int{w.now, w.now, w.now - 1, w.now - 90, w.now - 3600, 1000}[n(6, "age")]
	if c.export != nil && n(2, "same") == 0 {
		p = c.export.Properties
	}
	c.statements, c.export = nil, &Export{UID: fmt.Sprintf("%s-%d", c.id, c.uids), Created: created, Properties: p, Scoped: c.id != self && n(4, "scoped") == 0}
}

// withdraw states a withdrawal: of the export, rarely of another one.
func (w *world) withdraw(c *cluster, n chooser) {
	if c.export == nil {
		return
	}
	c.lost = false
	c.statements = []Statement{c.states(n)}
	if c.id != self && n(4, "another statement") == 0 {
		c.statements = append(c.statements, c.states(n))
	}
}

// states is a statement.
func (c *cluster) states(n chooser) Statement {
	out := Statement{UID: c.export.UID, Created: c.export.Created}
	switch n(5, "withdraw") {
	case 0, 1:
		out.Suspended = true
	case 2:
		out.Narrowed = c.id != self
	}
	if c.id != self && n(6, "of another export") == 0 {
		out.UID, out.Created = "other", c.export.Created+[]int{-10, 0, 10}[n(3, "created")]
	}
	return out
}

// forget is a cluster of which nothing is left.
func (c *cluster) forget(n chooser) {
	if n(2, "all is gone") == 0 {
		c.export, c.statements, c.lost = nil, nil, false
	}
}

// takeover confirms that of an export, or takes it back.
func (w *world) takeover(c *cluster, n chooser) {
	s := w.current().Import
	if s == nil {
		return
	}
	s = s.DeepCopy()
	delete(s.Annotations, model.AnnotationConfirmTakeover)
	if c.export != nil && n(4, "takes it back") > 0 {
		s.Annotations[model.AnnotationConfirmTakeover] = c.id + "/" + c.export.UID
	}
	if err := w.server.Put("user", s); err != nil {
		panic(err)
	}
}

// drop is a user who deletes the ServiceImport, the derived Service, or both.
func (w *world) drop(n chooser) {
	what := n(3, "deletes")
	if what != 1 {
		w.server.Remove("user", apiserver.Ref{Kind: "ServiceImport", Namespace: key.Namespace, Name: key.Name})
	}
	for _, s := range w.current().Services {
		if what != 0 {
			w.server.Remove("user", apiserver.Ref{Kind: "Service", Namespace: s.Namespace, Name: s.Name})
		}
	}
}

// live lets things happen, and compares after each.
func (w *world) live(t fataler, steps int, n chooser) {
	calls := 1 + n(3, "calls for each crash")
	for range steps {
		w.happen(n)
		writes := 1 << 30
		if n(calls, "crashes") == 0 {
			writes = 1 + n(2, "writes")
		}
		if n(4, "leader changes") == 0 {
			w.formsAt = w.now + 10
		}
		w.step(t, writes)
	}
}

// TestTheDecisionIsTheOraclesAnswer compares them in random sequences of steps.
func TestTheDecisionIsTheOraclesAnswer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		newWorld().live(t, 40, func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(t, what) })
	})
}

// transitions are what may become of a source: from the row of one decision to that of the
// next. Nothing is kept, or missing, of what is out. Those that were dropped begin anew.
var transitions = map[string]string{
	"":          "Joined",
	"found":     "Removed Ended Suspended Refused NotRead Missing",
	"Ended":     "Removed Suspended Refused MissingConfirmed Published Replaced",
	"Suspended": "Removed Ended Refused MissingConfirmed Published Replaced",
	"Refused":   "Removed Ended Suspended MissingConfirmed Published Replaced",
	"NotRead":   "Removed Ended Suspended Refused MissingConfirmed Missing Published Replaced",
	"Missing":   "Removed Ended Suspended Refused NotRead MissingConfirmed Published Replaced",
	"Published": "Removed Ended Suspended Refused NotRead Missing Replaced",
	"Replaced":  "Removed Ended Suspended Refused NotRead Missing Published",
	"Joined":    "Removed Ended Suspended Refused NotRead Missing Published Replaced",
}

// TestEachTransitionIsMade compares them in more sequences, makes each transition, and makes
// no other.
func TestEachTransitionIsMade(t *testing.T) {
	t.Parallel()
	met := map[[2]string]int{}
	for seed := range uint64(600) {
		r, w := rand.New(rand.NewPCG(seed, 18)), newWorld()
		w.live(seeded{t, seed}, 120, func(n int, _ string) int { return r.IntN(n) })
		for pair, count := range w.met {
			met[pair] += count
		}
	}
	for from, all := range transitions {
		for _, to := range strings.Fields(all) {
			if met[[2]string{from, to}] == 0 {
				t.Errorf("no source went from %q to %s", from, to)
			}
			delete(met, [2]string{from, to})
		}
	}
	for pair, count := range met {
		t.Errorf("%d times, a source went from %q to %s, which the table does not allow", count, pair[0], pair[1])
	}
}

type seeded struct {
	*testing.T
	seed uint64
}

func (s seeded) Fatalf(format string, args ...any) {
	s.Helper()
	s.T.Fatalf("seed %d: %s", s.seed, fmt.Sprintf(format, args...))
}
