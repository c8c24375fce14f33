// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package members knows who the other members of the clusterset are, and reads them.
//
// It decides by which connection a member is read, whether the member is alive, and what
// is accepted from it; package remote is that connection, and knows no Peer.
//
// It takes the Peers, and the Secrets with their kubeconfigs in Comity's namespace; it
// gives the members, their liveness, exports, slices, namespaces and reports, and a
// notification of each change. A Peer that is absent or being deleted is no member, one
// that is refused is a member that is not read; only spec.removed removes one. It never
// logs a credential, and writes nothing but renewed tokens into those Secrets and the
// status of Peers, on which it decides nothing.
package members

import (
	"cmp"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/endpointprobe"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/remote"
)

// Options configure a Set; all fields without a default are required.
type Options struct {
	// Self is this cluster's id; a Peer of that name is refused.
	Self model.ClusterID
	// ClusterUID is the UID of this cluster's kube-system namespace, by which a Peer of
	// its own is known. Default: none is.
	ClusterUID types.UID
	// ClusterSet is the set that this cluster belongs to.
	ClusterSet string
	// Namespace is Comity's own, where the Secrets of Peers are.
	Namespace string
	// LocalCluster is what this cluster is like; its own address ranges are accepted
	// from no peer. Required.
	LocalCluster func() model.LocalCluster
	// LostAfter is how long the Lease of a peer may lack a renewal before its endpoints are
	// probed; if they do not answer either, it is Lost.
	LostAfter time.Duration
	// Probe is how often they are; default two seconds. Dial is that of endpointprobe.
	Probe time.Duration
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	// StatusInterval is how often the status of a Peer is computed, and written if it
	// changed. A change of its state is written at once.
	StatusInterval time.Duration
	// Clock is this cluster's; default the real one.
	Clock clock.PassiveClock
	// Recorder writes events about Peers.
	Recorder events.EventRecorder
	// Registry takes the package's metrics; nil registers none.
	Registry prometheus.Registerer
	// Log never receives a credential.
	Log logr.Logger
}

// Set is every member but this cluster. All methods may be called from any goroutine;
// what they return is read-only.
type Set struct {
	opts   Options
	prober *endpointprobe.Prober
	ctx    context.Context // ends when the process does; connections live in it
	cancel context.CancelFunc
	listed chan struct{}
	once   sync.Once // closes listed

	// view is what the exported methods read, replaced as a whole, so that reading takes
	// no lock.
	view atomic.Pointer[view]

	// connect and requestLease reach peers; tests replace them.
	connect      func(context.Context, remote.Options) (*remote.Connection, error)
	requestLease func(ctx context.Context, id, self model.ClusterID, config *rest.Config) (string, remote.Failure)

	mu       sync.Mutex
	members  map[model.ClusterID]*member
	hub      *corev1.Secret // with the token for the hub in which this cluster publishes, if there is one
	lastTick time.Time      // when tick last ran
	ending   sync.WaitGroup // retired connections and running checks of Leases

	changes notify.Topic[model.MemberChange]
	// statuses are the Peers whose status may have to be written.
	statuses notify.Topic[string]
	leads    atomic.Bool // this replica writes them
}

// view is what is known at one time.
type view struct {
	members []snapshot // sorted by id
	removed []model.ClusterID
	ownID   types.UID // see OwnIDClaim
	peers   []string  // the names of all Peers
}

// snapshot is one member in the view.
type snapshot struct {
	model.Member                    // without Reported
	from         *remote.Connection // nil unless it is synced
	accepted     accepted
}

// New returns a Set without any member.
func New(opts Options) *Set {
	opts.Clock, opts.Probe = cmp.Or[clock.PassiveClock](opts.Clock, clock.RealClock{}), cmp.Or(opts.Probe, 2*time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	s := &Set{
		opts: opts, ctx: ctx, cancel: cancel, listed: make(chan struct{}),
		connect: remote.Connect, requestLease: remote.ReadLease, lastTick: opts.Clock.Now(),
		members: map[model.ClusterID]*member{},
	}
	if opts.Registry != nil {
		opts.Registry.MustRegister(metrics{s})
	}
	// Of a lost peer, no more than 50 addresses are opened in a second, on two replicas.
	s.prober = endpointprobe.New(endpointprobe.Options{
		Dial: opts.Dial, Interval: opts.Probe, Concurrency: 10 * maxSample, Sample: maxSample, Strict: true, Log: opts.Log,
	})
	s.view.Store(&view{})
	return s
}

// Listed is closed once every Peer present at start was read, or it is known that Peers
// are not defined. Before that Members is incomplete, and nothing may be concluded from it.
func (s *Set) Listed() <-chan struct{} { return s.listed }

// OwnIDClaim is the UID of another cluster that a Peer with this cluster's own id names; empty
// if there is none. Who started this cluster with the id of a peer made that peer's Peer such
// a one. No Peer with this cluster's id is a member.
func (s *Set) OwnIDClaim() types.UID { return s.view.Load().ownID }

// Members lists the other members by id, connected or not: one for each Peer that is
// neither removed nor being deleted. One whose Peer is refused is not Synced. One whose
// credential was revoked, or that cannot be reached, stays Synced: it becomes Lost, and
// what was read last counts.
func (s *Set) Members() []model.Member {
	return model.Map(s.view.Load().members, snapshot.member)
}

func (m snapshot) member() model.Member {
	out := m.Member
	out.Reported = m.from != nil && m.from.Reported()
	return out
}

// Removed lists the clusters that the administrator removed (spec.removed), sorted.
func (s *Set) Removed() []model.ClusterID { return s.view.Load().removed }

// Subscribe has subscriber called with each change of a member, and with this cluster's own
// id when OwnIDClaim changed. It may not block. The returned function ends the subscription.
func (s *Set) Subscribe(subscriber func(model.MemberChange)) (cancel func()) {
	return s.changes.Subscribe(subscriber)
}

// Read is what every member, and every cluster that was removed, is known to publish of
// key, sorted by cluster. Of a member that is not synced, only what its Peer says is known.
// Records that are not valid are left out; they were reported when they were read. Slices
// are read only if asked for.
func (s *Set) Read(key types.NamespacedName, withSlices bool) []exchange.Published {
	view := s.view.Load()
	out := make([]exchange.Published, 0, len(view.members)+len(view.removed))
	for i := range view.members {
		out = append(out, s.published(&view.members[i], key, withSlices))
	}
	for _, id := range view.removed {
		out = append(out, exchange.Published{Member: model.Member{ID: id}, Removed: true})
	}
	return out
}

func (s *Set) published(m *snapshot, key types.NamespacedName, withSlices bool) exchange.Published {
	out := exchange.Published{
		Member: m.member(), Known: true, NotAccepted: !m.accepted.namespaces.Contains(key.Namespace),
		Accepted: &exchange.Filter{Accepted: m.accepted.cidrs, LocalCluster: s.opts.LocalCluster()},
	}
	if m.from == nil {
		return out
	}
	out.Namespace = m.from.Namespace(key.Namespace)
	out.Export, out.Refusal = m.from.Export(key)
	switch {
	case out.Export != nil && out.NotAccepted:
		out.Export, out.Refusal = nil, &model.Refusal{ExportUID: out.Export.UID}
	case out.Export != nil && withSlices:
		out.Slices, out.Problems = m.slices(key, *out.Accepted)
	}
	out.Withdrawals = m.from.Withdrawals(key)
	// One that ceases to be synced while it is read may have seemed to export nothing.
	out.Synced = m.from.Verified()
	if !out.Synced {
		out.Export = nil
	}
	return out
}

// slices are the EndpointSlice copies that a member publishes for key, sorted by name,
// without the parts that may not be imported; the problems name those.
func (m *snapshot) slices(key types.NamespacedName, filter exchange.Filter) (out []*discoveryv1.EndpointSlice, problems []model.Problem) {
	dropped := exchange.Report{}
	copies, more := m.from.Slices(key)
	for _, slice := range copies {
		clean, report := exchange.CleanSlice(slice, filter)
		dropped.Add(report)
		if clean == nil {
			clean = &discoveryv1.EndpointSlice{ObjectMeta: slice.ObjectMeta}
		}
		out = append(out, clean)
	}
	problems = dropped.Problems(m.ID, filter)
	if more > 0 {
		problems = append(problems, model.Problemf(model.ReasonLimitExceeded, m.ID,
			"cluster %s publishes %d EndpointSlices of %s more than the %d that are read of one export; remedy: export it by several Services",
			m.ID, more, key, exchange.MaxSliceNames))
	}
	if problem := m.from.State().Problem; problem.Reason == model.ReasonLimitExceeded { // not everything was read
		problems = append(problems, model.Problem{Reason: problem.Reason, Cluster: m.ID, Message: problem.Message})
	}
	return out, problems
}

// Reports are the reports of the synced peers on importing this cluster's export
// of key, sorted by cluster.
func (s *Set) Reports(key types.NamespacedName) []model.Report {
	var out []model.Report
	for _, r := range s.view.Load().members {
		if r.from == nil {
			continue
		}
		if report, ok := r.from.Report(key); ok {
			out = append(out, report)
		}
	}
	return out
}

// Namespace says of every synced peer whether it has a namespace called name.
func (s *Set) Namespace(name string) map[model.ClusterID]decision.PeerNamespace {
	out := map[model.ClusterID]decision.PeerNamespace{}
	for _, m := range s.view.Load().members {
		if m.from != nil {
			out[m.ID] = m.from.Namespace(name)
		}
	}
	return out
}

// Keys lists what every synced peer publishes a record of, each once, in no order.
func (s *Set) Keys() []types.NamespacedName {
	keys := sets.New[types.NamespacedName]()
	for _, r := range s.view.Load().members {
		if r.from != nil {
			keys.Insert(r.from.Keys()...)
		}
	}
	return keys.UnsortedList()
}

// metrics say how the members are at the moment, and what was counted of them. They carry the label
// peer: federated Prometheus sets cluster itself.
type metrics struct{ set *Set }

// Describe implements prometheus.Collector. A Set without members has nothing to describe.
func (metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g metrics) Collect(out chan<- prometheus.Metric) {
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	for id, m := range g.set.members {
		metric := func(kind prometheus.ValueType, name, help string, value float64, labels prometheus.Labels) {
			out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{"peer"}, labels), kind, value, string(id))
		}
		gauge := func(name, help string, value float64, labels prometheus.Labels) {
			metric(prometheus.GaugeValue, name, help, value, labels)
		}
		metric(prometheus.CounterValue, "comity_peer_records_rejected_total", "Records of a peer that were read and are not valid.", float64(m.rejected.Load()), nil)
		metric(prometheus.CounterValue, "comity_peer_reconnects_total", "Connections replaced because their watches brought nothing any more.", float64(m.reconnects), nil)
		is, now := map[bool]float64{true: 1}, m.state()
		for _, state := range []string{stateRefused, stateNotRead, string(model.Connected), string(model.Lost)} {
			gauge("comity_peer_state", "1 for the state of the peer: Refused (its Peer is), NotRead (not completely since start), Connected or Lost.",
				is[state == now], prometheus.Labels{"state": state})
		}
		gauge("comity_peer_drained", "1 if the peer is drained, so that its endpoints are the last resort here.", is[len(m.drains()) > 0], nil)
		gauge("comity_peer_probed_endpoints", "Endpoints of the peer that answered lately, and of which one has to answer once its heartbeat is missing.", float64(len(m.probes.answered)), nil)
		gauge("comity_peer_limit_exceeded", "1 if the peer publishes more than is read of one, or changes it faster, so that it is not read, or later.",
			is[m.limited() != remote.Failure{}], nil)
		if at := m.heartbeat.lastRenewal; !at.IsZero() {
			gauge("comity_peer_last_heartbeat_timestamp_seconds", "When the last heartbeat of the peer was seen, by this cluster's clock.", float64(at.Unix()), nil)
		}
	}
}

// States of a member beside those of its liveness.
const stateRefused, stateNotRead = "Refused", "NotRead"

// state is the member's for the metric.
func (m *member) state() string {
	switch {
	case m.claim.unusable(): // its heartbeat is not followed
		return stateRefused
	case !m.synced():
		return stateNotRead
	}
	return string(m.heartbeat.liveness.State)
}
