// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/agent"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// Everything that can happen, and how often against each other. Options.Steps
// names a choice of it.
var everything = map[string]int{
	"user": 40, "crash": 4, "second leader": 2, "part": 3, "heal": 4, "backup": 2, "restore": 2, "gone": 4,
	"slip": 4, "confirm": 1, "hostile": 4, "later": 4, "confirm takeover": 3, "flood": 3,
	"skew": 2, "down": 2, "up": 4, "remove": 1, "absent": 2, "join": 4, "policy": 3, "import policy": 3, "exclude": 1, "lost": 3, "foreign": 5, "meddle": 6, "namespace": 4,
}

// outcomes are what policies may say.
var outcomes = []decision.Outcome{decision.Allowed, decision.NotEvaluated, decision.Denied}

// step lets one thing happen.
func (w *World) step() {
	names := slices.Sorted(maps.Keys(w.opts.Steps))
	total := 0
	for _, name := range names {
		total += w.opts.Steps[name]
	}
	// Reading and reconciling is what happens most.
	n := w.n(3*max(total, 1), "step")
	for _, name := range names {
		if n < w.opts.Steps[name] {
			w.now = w.now.Add(time.Duration(w.n(3, "seconds")) * time.Second)
			w.happen(name, w.cluster())
			return
		}
		n -= w.opts.Steps[name]
	}
	c := w.cluster()
	if w.n(2, "read or reconcile") == 0 {
		w.read(c)
		return
	}
	w.reconcile(c)
}

func (w *World) n(n int, what string) int { return w.opts.Source.N(n, what) }

func (w *World) cluster() *Cluster { return w.clusters[w.ids[w.n(len(w.ids), "cluster")]] }

// agent is one of the cluster's processes; a cluster without one gets one.
func (w *World) agent(c *Cluster) *agent.Process {
	if len(c.Agents) == 0 {
		return w.start(c)
	}
	return c.Agents[w.n(len(c.Agents), "which agent")]
}

// happen does what a name in everything stands for.
func (w *World) happen(name string, c *Cluster) {
	other := w.cluster()
	switch name {
	case "user":
		w.user(c)
	case "foreign":
		w.foreign(c)
	case "meddle":
		w.meddle(c)
	case "namespace":
		w.endNamespace(c)
	case "crash":
		c.Agents = nil
		w.start(c)
	case "second leader":
		if len(c.Agents) < 2 {
			w.start(c)
		} else {
			c.Agents = c.Agents[1:]
		}
	case "part", "heal":
		w.log("%s and %s: %s", c.ID, other.ID, name)
		w.parted[[2]model.ClusterID{c.ID, other.ID}] = name == "part"
		if w.n(2, "both ways") == 0 {
			w.parted[[2]model.ClusterID{other.ID, c.ID}] = name == "part"
		}
	case "down", "up":
		w.log("%s: %s", c.ID, name)
		c.Down = name == "down"
	case "remove", "absent", "join":
		w.peer(name, c, other.ID)
	case "policy":
		p := w.agent(c)
		p.Policy = outcomes[w.n(len(outcomes), "verdict")]
		w.log("%s: policy says %s", c.ID, p.Policy)
	case "import policy":
		w.importPolicy(c, other)
	case "exclude":
		w.exclude(c)
	case "lost":
		p := w.agent(c)
		p.Lost = nil
		for _, id := range p.Members() {
			if w.n(2, "lost") == 0 {
				p.Lost = append(p.Lost, id)
			}
		}
		w.log("%s: lost %v", c.ID, p.Lost)
	default:
		w.disturb(name, c)
	}
}

// peer changes the Peer of another cluster. One of a removed cluster stays until it joins.
func (w *World) peer(name string, c *Cluster, other model.ClusterID) {
	if other == c.ID || name == "absent" && c.Removed[other] {
		return
	}
	w.log("%s: Peer %s: %s", c.ID, other, name)
	w.setPeer(c, other, name == "join", name == "remove")
}

// importPolicy changes what the policies of c say of importing from another cluster.
func (w *World) importPolicy(c, from *Cluster) {
	p := w.agent(c)
	outcome := outcomes[w.n(len(outcomes), "import verdict")]
	if p.Imports == nil {
		p.Imports = map[model.ClusterID]decision.Outcome{}
	}
	p.Imports[from.ID] = outcome
	w.log("%s: import policy says %s of %s", c.ID, outcome, from.ID)
}

// exclude lets the policies of a cluster forbid every export to some members, rarely to
// many: scoped records would hide what happens to those that every member reads.
func (w *World) exclude(c *Cluster) {
	c.Excluded = nil
	for _, id := range w.ids {
		if w.n(6, "excluded") == 0 {
			c.Excluded = append(c.Excluded, string(id))
		}
	}
	for _, p := range c.Agents {
		p.Excluded = c.Excluded
	}
	w.log("%s: policy forbids exports to %v", c.ID, c.Excluded)
}

// disturb is the part of happen that concerns the API server.
func (w *World) disturb(name string, c *Cluster) {
	switch name {
	case "backup":
		c.backup = c.Server.Backup()
	case "restore":
		w.log("%s: etcd is restored", c.ID)
		c.Server.Restore(c.backup)
		w.restored[c.ID] = true
	case "gone":
		p := w.agent(c)
		for _, kind := range agent.LocalKinds {
			if w.n(3, "gone") == 0 {
				p.Local[kind].Relist(w.stale("a relist is behind by"))
			}
		}
		for _, id := range p.Members() {
			if w.reaches(c.ID, id) {
				w.reading(c, p, id, func() { p.Relist(id, func() int { return w.stale("a relist is behind by") }) })
			}
		}
	case "slip":
		w.slip(c)
	case "confirm":
		if other := w.cluster(); other != c {
			w.confirm(c, other.ID)
		}
	case "hostile":
		w.hostile(c)
	case "later":
		w.log("three minutes pass")
		w.now = w.now.Add(3 * time.Minute)
	case "flood":
		w.flood(c)
	case "confirm takeover":
		w.confirmSome(c)
	case "skew":
		c.Skew = []time.Duration{0, time.Hour, -time.Hour, -55 * 365 * 24 * time.Hour, 74 * 365 * 24 * time.Hour}[w.n(5, "skew")]
		w.log("%s: the clock is off by %s", c.ID, c.Skew)
	default:
		w.fail("the simulator itself: no step %q", name)
	}
}

// read lets one process learn something.
func (w *World) read(c *Cluster) {
	p := w.agent(c)
	members := p.Members()
	at := w.n(len(members)+1, "whom to read")
	if at == len(members) {
		if c.Down {
			return
		}
		for _, kind := range agent.LocalKinds {
			p.Local[kind].Follow(w.amount())
		}
		return
	}
	if !w.reaches(c.ID, members[at]) {
		return
	}
	w.reading(c, p, members[at], func() { p.Follow(members[at], w.amount) })
}

// amount is how many changes are read: mostly all.
func (w *World) amount() int {
	if w.opts.Late == 0 || w.n(3, "all") > 0 {
		return 1 << 30
	}
	return w.n(3, "changes")
}

// reconcile lets one process work on one key; whether anything happened to it
// does not matter, as work that nobody asked for must do no harm.
func (w *World) reconcile(c *Cluster) {
	if c.Down {
		return
	}
	p := w.agent(c)
	if kind := w.n(8, "what to reconcile"); kind < 7 {
		keys := p.Keys()
		if len(keys) == 0 {
			return
		}
		key := keys[w.n(len(keys), "key")]
		if w.depth > 0 && p.Seen.Key == key {
			return // no two workers work on one key
		}
		w.work(c, p, func() {
			_ = p.Publish(key) // what failed is tried again, at the end without faults
		})
		if kind > 2 {
			w.work(c, p, func() { w.importAndTell(p, key) })
		}
		return
	}
	w.work(c, p, func() { w.publishSelf(p) })
}

func (w *World) importAndTell(p *agent.Process, key agent.Key) {
	err := p.Import(key)
	w.check.decided(w.check.processes[p.Client.Actor], err)
	if err == nil {
		_ = p.Status(key)
	}
}

func (w *World) publishSelf(p *agent.Process) {
	p.PublishNamespaces()
	_ = p.PublishMember()
}

// work does something that may crash the process.
func (w *World) work(c *Cluster, p *agent.Process, do func()) {
	if !slices.Contains(c.Agents, p) {
		return // it crashed within what was done before
	}
	seen := p.Seen // of what is interrupted by this
	defer func() {
		p.Seen = seen
		crash := recover()
		if crash == nil {
			return
		}
		if _, is := crash.(apiserver.Crashed); !is {
			panic(crash)
		}
		w.log("%s: %s crashes", c.ID, p.Client.Actor)
		w.crashed[p] = true
		c.Agents = slices.DeleteFunc(c.Agents, func(o *agent.Process) bool { return o == p })
		if len(c.Agents) == 0 {
			w.start(c)
		}
	}()
	do()
}

// fault is what goes wrong with a call, after something else may have happened.
func (w *World) fault(c *Cluster, p *agent.Process, verb string, ref apiserver.Ref) apiserver.Fault {
	w.calls++
	if w.killAll || w.calls-1 == w.killAt {
		return apiserver.CrashAfter
	}
	if w.calm {
		return apiserver.None
	}
	if w.opts.Between > 0 && w.depth == 0 && w.n(w.opts.Between, "something in between") == 0 {
		w.depth++
		w.step()
		w.depth--
		if w.crashed[p] {
			return apiserver.CrashBefore // within what happened meanwhile
		}
	}
	if w.opts.Calls == 0 || w.n(w.opts.Calls, "a fault") > 0 {
		return apiserver.None
	}
	fault := apiserver.Fault(1 + w.n(apiserver.Faults-1, "which"))
	w.log("%s: %s meets %q at %s %s", c.ID, p.Client.Actor, fmt.Sprint(fault), verb, ref)
	return fault
}

// Everything are all steps and how often each happens against the others.
func Everything() map[string]int { return maps.Clone(everything) }

// Live lets n things happen.
func (w *World) Live(n int) {
	for range n {
		w.step()
	}
}
