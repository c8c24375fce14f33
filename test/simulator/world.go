// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/test/simulator/agent"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// Source makes every choice of a run: the same choices give the same run.
type Source interface {
	// N is a number from 0 to n-1; what it is for helps who reads a shrunk run.
	N(n int, what string) int
}

type seeded struct{ *rand.Rand }

func (s seeded) N(n int, _ string) int { return s.IntN(n) }

// Seed is a Source that a number stands for.
func Seed(seed uint64) Source { return seeded{rand.New(rand.NewPCG(seed, 0x636f6d697479))} }

// Options say what a world is made of.
type Options struct {
	Source   Source
	Clusters []model.ClusterID
	Keys     []types.NamespacedName
	// Steps are what may happen, beside reading and reconciling, and how often.
	Steps map[string]int
	// Calls is how many calls there are for each that meets a fault; 0 is never.
	Calls int
	// Between is how many calls there are for each before which something else
	// happens; 0 is never.
	Between int
	// Late is up to how many changes a watch may be behind, Stale a list.
	Late, Stale int
	// Limits are those of what is read of one peer, of which each cluster draws one;
	// none are the defaults.
	Limits []budget.Limits
	// Families lets Services have slices of both IP families, and Retype lets a
	// slice come back under its name with another.
	Families, Retype bool
	// Ports lets ServiceExports name the ports that they share.
	Ports bool
	// Started is told of each process that starts, before it does anything.
	Started func(*agent.Process)
}

// World is N clusters, their users and their agents, and what time it is.
type World struct {
	opts     Options
	now      time.Time
	ids      []model.ClusterID
	clusters map[model.ClusterID]*Cluster
	parted   map[[2]model.ClusterID]bool
	trace    []string
	writes   []apiserver.Write // of agents
	calls    int               // of agents
	calm     bool              // nothing fails any more
	depth    int               // of steps that happen within calls
	check    *checker
	crashed  map[*agent.Process]bool
	restored map[model.ClusterID]bool // whose store was restored: their records vanished without a write
	// killAt is the call at which the process is ended, -1 for none; killAll
	// ends one at every call.
	killAt  int
	killAll bool
}

// Cluster is one member of the clusterset.
type Cluster struct {
	ID     model.ClusterID
	Server *apiserver.Server
	// Peers are those that the administrator joined, Removed those of which he set
	// spec.removed. A Peer that was deleted otherwise is in neither.
	Peers, Removed map[model.ClusterID]bool
	Down           bool
	Skew           time.Duration
	// Limits are those of what its agents read of one peer.
	Limits budget.Limits
	Agents []*agent.Process
	// Confirmed is when the administrator last confirmed what is missing of a peer.
	// ConfirmedAt is the same by the clock of the world.
	Confirmed, ConfirmedAt map[model.ClusterID]time.Time
	// Excluded are the clusters to which the policies of this one forbid every export.
	Excluded []string
	backup   apiserver.Snapshot
	starts   int
}

// Violation is what a run is stopped with when an invariant does not hold.
type Violation struct{ Message string }

func (v Violation) Error() string { return v.Message }

// New is a world in which every cluster is joined to every other, and nothing
// is exported.
func New(opts Options) *World {
	w := &World{
		opts: opts, now: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), ids: opts.Clusters,
		clusters: map[model.ClusterID]*Cluster{}, parted: map[[2]model.ClusterID]bool{}, crashed: map[*agent.Process]bool{}, restored: map[model.ClusterID]bool{}, killAt: -1,
	}
	w.check = newChecker(w)
	for _, id := range w.ids {
		c := &Cluster{ID: id, Peers: map[model.ClusterID]bool{}, Removed: map[model.ClusterID]bool{}, Confirmed: map[model.ClusterID]time.Time{}, ConfirmedAt: map[model.ClusterID]time.Time{}}
		c.Server = apiserver.New(string(id), func() time.Time { return w.now.Add(c.Skew) })
		c.Server.Audit = func(write apiserver.Write) { w.audit(c, write) }
		w.clusters[id] = c
		if limits := opts.Limits; len(limits) > 0 {
			c.Limits = limits[w.n(len(limits), "limits")]
		}
		w.namespace(c, agent.Namespace, "")
		w.namespace(c, model.ExchangeNamespace(id), string(id))
		for _, other := range w.ids {
			if other != id {
				c.Peers[other] = true
				w.namespace(c, model.ScopedExchangeNamespace(id, other), string(id))
			}
		}
		for _, key := range opts.Keys {
			w.namespace(c, key.Namespace, "")
		}
		c.backup = c.Server.Backup()
	}
	for _, id := range w.ids {
		w.start(w.clusters[id])
	}
	return w
}

func (w *World) namespace(c *Cluster, name, from string) {
	n := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	if from != "" {
		n.Labels = map[string]string{model.LabelExchangeFrom: from}
	}
	if c.Server.Get(apiserver.RefOf(n)) == nil {
		w.must(c.Server.Put("user", n))
	}
}

func (w *World) must(err error) {
	if err != nil {
		w.fail("the simulator itself: %v", err)
	}
}

func (w *World) fail(format string, args ...any) {
	panic(Violation{fmt.Sprintf(format, args...)})
}

func (w *World) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// Trace is what happened, one line each.
func (w *World) Trace() []string { return w.trace }

// Writes are what the agents wrote, in order.
func (w *World) Writes() []apiserver.Write { return w.writes }

// Run does what do does, and gives what invariant it broke, with the trace's end.
func (w *World) Run(do func()) (err error) {
	defer func() {
		switch broken := recover().(type) {
		case nil:
		case Violation:
			err = fmt.Errorf("%s\nthe last of %d events:\n\t%s", broken.Message, len(w.trace),
				strings.Join(w.trace[max(0, len(w.trace)-40):], "\n\t"))
		default:
			panic(broken)
		}
	}()
	do()
	return nil
}

// audit records and checks every write in a cluster.
func (w *World) audit(c *Cluster, write apiserver.Write) {
	w.log("%s: %s %s %s", c.ID, write.Actor, write.Verb(), write.Ref)
	if strings.HasPrefix(write.Actor, agentPrefix) {
		w.writes = append(w.writes, write)
	}
	w.check.wrote(c, write)
}

const agentPrefix = "agent "

// start adds a process to a cluster.
func (w *World) start(c *Cluster) *agent.Process {
	c.starts++
	client := &apiserver.Client{Server: c.Server, Actor: fmt.Sprintf("%s%s/%d", agentPrefix, c.ID, c.starts)}
	p := agent.Start(c.ID, client, c.Server.Clock, func() int { return w.stale("a list is behind by") })
	client.Fault = func(verb string, ref apiserver.Ref) apiserver.Fault { return w.fault(c, p, verb, ref) }
	w.check.process(client.Actor, c, p)
	p.Excluded, p.Limits = c.Excluded, c.Limits
	if w.opts.Started != nil {
		w.opts.Started(p)
	}
	w.configure(c, p)
	c.Agents = append(c.Agents, p)
	w.log("%s: %s starts", c.ID, client.Actor)
	return p
}

// configure lets a process see the Peers.
func (w *World) configure(c *Cluster, p *agent.Process) {
	p.Removed = maps.Clone(c.Removed)
	for _, id := range w.ids {
		switch peer, has := p.Peers[id]; {
		case c.Peers[id] && !has:
			p.Connect(id, w.clusters[id].Server).Confirmed = c.Confirmed[id]
		case !c.Peers[id] && has:
			delete(p.Peers, id)
		case has:
			peer.Confirmed = c.Confirmed[id]
		}
	}
}

// setPeer changes the Peer of another cluster: it is joined, removed, or absent.
func (w *World) setPeer(c *Cluster, id model.ClusterID, joined, removed bool) {
	c.Peers[id], c.Removed[id] = joined, removed
	if !removed {
		delete(c.Removed, id)
	}
	for _, p := range c.Agents {
		w.configure(c, p)
	}
}

// confirm is what an administrator does who wants to be rid of what is missing of a
// cluster: in a clock that may be wrong, and may have been wrong when it was found missing.
func (w *World) confirm(c *Cluster, peer model.ClusterID) {
	w.log("%s: what is missing of %s is confirmed", c.ID, peer)
	c.Confirmed[peer], c.ConfirmedAt[peer] = c.Server.Clock(), w.now
	for _, p := range c.Agents {
		w.configure(c, p)
	}
}

func (w *World) stale(what string) int {
	if w.calm || w.opts.Stale == 0 || w.opts.Source.N(4, "stale at all") > 0 {
		return 0
	}
	return w.opts.Source.N(w.opts.Stale+1, what)
}

func (w *World) reaches(a, b model.ClusterID) bool {
	return !w.clusters[b].Down && !w.parted[[2]model.ClusterID{a, b}]
}
