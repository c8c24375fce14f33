// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package members reads what the other members of the clusterset publish.
//
// It takes the peer Secrets in Comity's namespace; it gives the members, their
// liveness, exports, slices, namespaces and reports, the held deletions, and a
// notification of each change. It never logs a credential and writes nothing but
// renewed tokens and the UID of the peer into those Secrets. Labels: KEP-2149.
package members

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/comity-mcs/comity/sync/members/deletionguard"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

// Options configure a Set; all fields without a default are required.
type Options struct {
	// Self is this cluster's id; a peer Secret that claims it is refused.
	Self model.ClusterID
	// ClusterUID is the UID of this cluster's kube-system namespace, by which a Secret of
	// its own is known. Default: none is.
	ClusterUID types.UID
	// ClusterSet is the set that this cluster belongs to.
	ClusterSet string
	// Namespace is Comity's own, where the peer Secrets are.
	Namespace string
	// LocalCluster is what this cluster is like; its own address ranges are accepted
	// from no peer. Default: none are known.
	LocalCluster func() model.LocalCluster
	// StaleAfter and LostAfter are how long the Lease of a peer may lack a renewal
	// before the peer is Stale, then Lost; default 40 s and 5 min. A Lease is renewed
	// every 10 s.
	StaleAfter, LostAfter time.Duration
	// DeletionHold is how long a member is kept whose Secret was deleted without the
	// mark of kubectl comity leave, and how long a deletion is held that looks like
	// an accident; default 10 min.
	DeletionHold time.Duration
	// Imported lists what is imported from each cluster. Exports and Secrets that were
	// deleted before this process started are known by it. Default: nothing.
	Imported func(context.Context) (map[model.ClusterID][]types.NamespacedName, error)
	// Limits bound what is read of each peer; zero fields have the defaults.
	Limits budget.Limits
	// Clock is this cluster's; default the real one.
	Clock clock.WithTicker
	// Recorder writes events about peer Secrets.
	Recorder events.EventRecorder
	// Registry takes the package's metrics; nil registers none.
	Registry prometheus.Registerer
	// Log never receives a credential.
	Log logr.Logger
}

func (o *Options) setDefaults() {
	if o.LocalCluster == nil {
		o.LocalCluster = func() model.LocalCluster { return model.LocalCluster{} }
	}
	if o.StaleAfter == 0 {
		o.StaleAfter = 40 * time.Second
	}
	if o.LostAfter == 0 {
		o.LostAfter = 5 * time.Minute
	}
	if o.DeletionHold == 0 {
		o.DeletionHold = 10 * time.Minute
	}
	if o.Imported == nil {
		o.Imported = func(context.Context) (map[model.ClusterID][]types.NamespacedName, error) { return nil, nil }
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

// Set is every peer of this cluster. All methods may be called from any
// goroutine; what they return is read-only.
//
// A peer may change between two calls. A caller that deletes what is not exported
// calls Members before and after Exports, treats a peer as unsynced if either says
// so, and calls Held after Exports.
type Set struct {
	opts       Options
	metrics    metrics
	ctx        context.Context // ends when the process does; connections live in it
	cancel     context.CancelFunc
	listed     chan struct{}
	unrecorded chan struct{} // holds one if a Secret lacks the UID of its cluster

	// view is what the exported methods read: sorted by id, replaced as a whole, so
	// that reading takes no lock.
	view atomic.Pointer[[]snapshot]
	// ownID is what OwnIDClaim returns; nil for none.
	ownID atomic.Pointer[model.OwnIDClaim]

	// connect and requestLease reach peers; tests replace them.
	connect      func(context.Context, remote.Options) (*remote.Connection, error)
	requestLease func(ctx context.Context, id, self model.ClusterID, config *rest.Config) (string, remote.Failure)

	mu       sync.Mutex
	members  map[model.ClusterID]*member
	reported map[types.UID]string   // the last message about a refused Secret
	isLeader bool                   // and writes the events
	pending  map[topic]pendingEvent // events to write once this replica leads
	lastTick time.Time              // when tick last ran
	marks    map[types.UID]mark     // the Secrets that were marked as leaving when last seen
	// unidentified is a Secret that is refused and may be that of any member without one.
	unidentified string
	// awaited is what the members without a Secret are kept for, whatever time passes:
	// the text of ownerUnknown when it was last checked.
	awaited string
	ending  sync.WaitGroup // retired connections and running checks of Leases

	pacer   *pacer // publishes to keys
	cleaned cleanedSlices

	// What the Subscribe methods subscribe to.
	keys, reports  notify.Topic[types.NamespacedName]
	namespaces     notify.Topic[string]
	changedMembers notify.Topic[model.ClusterID]
}

// snapshot is one member in the view; from is nil unless it is synced.
type snapshot struct {
	id         model.ClusterID
	secret     types.NamespacedName
	from       *remote.Connection
	read       bool // it was synced before, or is
	liveness   model.Liveness
	properties map[string]string
	accepted   accepted
	// states: the peer states its withdrawals. Of one that does, holds says what is
	// held, of any other guard does.
	states bool
	holds  *holds
	guard  *deletionguard.Guard
	// unused: there is no Secret, or it is refused.
	unused bool
	// limited: it exceeds a limit.
	limited bool
}

// heldKeys lists what is held, in no order.
func (r *snapshot) heldKeys() []types.NamespacedName {
	if r.states {
		return r.holds.keys()
	}
	return r.guard.Keys()
}

// New returns a Set without any peer.
func New(opts Options) *Set {
	opts.setDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Set{
		opts: opts, metrics: newMetrics(opts.Registry), ctx: ctx, cancel: cancel,
		listed: make(chan struct{}), unrecorded: make(chan struct{}, 1),
		connect: remote.Connect, requestLease: remote.ReadLease, lastTick: opts.Clock.Now(),
		members: map[model.ClusterID]*member{}, reported: map[types.UID]string{}, marks: map[types.UID]mark{}, pending: map[topic]pendingEvent{},
	}
	s.view.Store(&[]snapshot{})
	s.pacer, s.cleaned = newPacer(s.keys.Publish), newCleanedSlices()
	return s
}

// Listed is closed once every peer Secret present at start was read. Before that
// Members is incomplete, and nothing may be deleted because of it.
func (s *Set) Listed() <-chan struct{} { return s.listed }

// OwnIDClaim is a Secret that is refused because it has this cluster's own id, and that
// is not known to be this cluster's, or that of a member; false if there is none. Who
// started this cluster with the id of a peer made that peer's Secret such a one.
func (s *Set) OwnIDClaim() (model.OwnIDClaim, bool) {
	if claim := s.ownID.Load(); claim != nil {
		return *claim, true
	}
	return model.OwnIDClaim{}, false
}

// Members lists the other members by id, connected or not. A peer whose
// credential was revoked, or that cannot be reached, stays Synced: it becomes Stale,
// and what was read last counts.
func (s *Set) Members() []model.Member {
	view := *s.view.Load()
	out := make([]model.Member, len(view))
	for i, r := range view {
		out[i] = model.Member{ID: r.id, Synced: r.from != nil, Read: r.read, Reported: r.from != nil && r.from.Reported(), Liveness: r.liveness, Labels: r.properties,
			StatesWithdrawals: r.from != nil && r.states}
	}
	return out
}

// State is the state of one peer, in the words of the events on its Secret.
type State struct {
	ID     model.ClusterID
	Secret types.NamespacedName
	Synced bool
	// Trying is true while the credentials that the Secret holds now are not in use
	// yet: a new connection is not synced, or a new token not accepted.
	Trying bool
	// Reason and Message say what is wrong; empty if nothing is.
	Reason, Message string
}

// States lists the state of every member, by id.
func (s *Set) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []State
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		out = append(out, s.members[id].state())
	}
	return out
}

// Subscribe calls key when an export, its slices or its hold changed, and member
// when a peer appeared, became synced, lost that, changed its Liveness state, its
// properties or what is accepted from it, or went, and with this cluster's own id when
// OwnIDClaim changed. Neither may block. The
// returned function ends the subscription.
func (s *Set) Subscribe(key func(types.NamespacedName), member func(model.ClusterID)) func() {
	return notify.Both(s.keys.Subscribe(key), s.changedMembers.Subscribe(member))
}

// SubscribeNamespaces calls namespace when what Namespace answers for that name
// may have changed in one peer, and member as Subscribe does. Neither may block.
// The returned function ends the subscription.
func (s *Set) SubscribeNamespaces(namespace func(string), member func(model.ClusterID)) func() {
	return notify.Both(s.namespaces.Subscribe(namespace), s.changedMembers.Subscribe(member))
}

// SubscribeReports calls report when what Reports answers for that key may have
// changed, with the zero key if it may have for all, and member as Subscribe does.
// Neither may block. The returned function ends the subscription.
func (s *Set) SubscribeReports(report func(types.NamespacedName), member func(model.ClusterID)) func() {
	return notify.Both(s.reports.Subscribe(report), s.changedMembers.Subscribe(member))
}
