// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package remote is a connection to another API server, of a peer or a hub.
//
// It takes a client configuration that package kubeconfig has accepted; it gives
// what the peer publishes, whether all of it was read, why not, and a notification
// of each change. It passes on no record that package exchange has not validated
// and no text of the peer's server. It writes nothing but requests for tokens, and a new token into its Secret.
//
// It knows one server and one set of credentials, and no Peer: which connection is used, what
// is accepted and when a member counts as lost is decided in package members.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

// Limits on requests to one peer. The burst reads 10,000 exports, their slices and as many
// reports: 180 pages.
const (
	peerQPS   = 20
	peerBurst = 200
)

// burst is how many times in a row a peer becomes verified, states something else of itself, or
// has reported on everything. Each time, all that it may concern is compared. After these,
// Limits.Pause must pass each time.
const burst = 10

// maxVersion and maxDrained bound what a peer states, in bytes.
const (
	maxVersion = 64
	maxDrained = 256
)

// Hooks are how a connection notifies its owner. None may block.
type Hooks struct {
	// Changed: an export (ExportChanged) or one of its slices (EndpointsChanged), a namespace of the
	// peer or its identity (NamespaceChanged), or the peer's report on importing an export
	// (ReportChanged) was added, changed or removed; or, with ReportChanged and the zero key,
	// Reported became true.
	Changed func(model.MemberChange)
	// LeaseRead: the peer's Lease was read. It was renewed if renewal differs from
	// the last one.
	LeaseRead func(c *Connection, renewal string)
	// State: what State, Verified or Current returns changed.
	State func(*Connection)
	// Rejected: a record was read that is not valid.
	Rejected func()
	// Restored: the peer's store was restored from a backup; one kind is listed again.
	Restored func(*Connection, error)
}

// Options configure a Connection; all fields are required but Limits.
type Options struct {
	// ID is the peer's id, Self this cluster's, ClusterSet the set of both.
	ID, Self   model.ClusterID
	ClusterSet string
	// ClusterUID is the only cluster that may be the peer.
	ClusterUID types.UID
	Config     *rest.Config
	Log        logr.Logger
	Hooks      Hooks
	// Limits bound what is read; zero fields have the defaults.
	Limits budget.Limits
}

// Connection reads one peer. All methods may be called from any goroutine; what
// they return is read-only.
type Connection struct {
	opts      Options
	transport *Transport
	feeds     feeds
	budget    *budget.Member
	cancel    context.CancelFunc
	done      sync.WaitGroup

	// verified: everything was read, and the MemberRecord is what it should be.
	verified atomic.Bool
	ctx      context.Context // ends with Stop
	// confirmed are the versions of the statements of a narrower scope that count, by name;
	// unconfirmed is for one that does not yet.
	confirmed   atomic.Pointer[map[string]string]
	unconfirmed notify.Wake

	mu         sync.Mutex
	catchingUp bool // the peer says that it has not reported on everything yet
	// reported and current are what Reported and Current return, as of the last refresh.
	reported, current bool
	state             State
	// What the peer can make change, see burst.
	verifications, statements, reports seldom
}

// seldom limits how often something happens.
type seldom struct {
	limiter *rate.Limiter
	waits   bool // for the end of a pause
}

func newSeldom(limits budget.Limits) seldom {
	return seldom{limiter: rate.NewLimiter(rate.Every(limits.Pause), burst)}
}

// State is what is known of a peer besides what it exports and reports.
type State struct {
	// Problem is what keeps the peer, or a part of it, from being read.
	Problem Failure
	// Version is that of Comity in the peer; empty if it is not known.
	Version string
	// Drained is annotation comity.dev/drained of the peer's MemberRecord; empty if there is none.
	Drained string
}

// Connect starts reading a peer. It returns at once; whether the peer can be
// reached shows in the hooks.
func Connect(ctx context.Context, opts Options) (*Connection, error) {
	opts.Limits.SetDefaults()
	transport := NewTransport(opts.Self, opts.Limits)
	if err := transport.Use(opts.Config); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", opts.ID, err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, opts.Log))
	c := &Connection{
		opts: opts, transport: transport, cancel: cancel, unconfirmed: notify.NewWake(),
		budget: budget.New(opts.Limits), ctx: ctx, verifications: newSeldom(opts.Limits), statements: newSeldom(opts.Limits), reports: newSeldom(opts.Limits),
	}
	c.confirmed.Store(&map[string]string{})
	var err error
	if c.feeds, err = newFeeds(c); err != nil {
		cancel()
		return nil, fmt.Errorf("cluster %s: %w", opts.ID, err)
	}
	for _, f := range c.feeds.all() {
		// result reports failures; the reflector would log each retry.
		c.done.Go(func() { f.reflector.RunWithContext(klog.NewContext(ctx, logr.Discard())) })
	}
	c.done.Go(func() { c.confirmNarrowed(ctx) })
	return c, nil
}

// ID is the peer's id.
func (c *Connection) ID() model.ClusterID { return c.opts.ID }

// Config is the configuration whose credentials are in use.
func (c *Connection) Config() *rest.Config { return c.opts.Config }

// Stop ends all reading; Wait waits for that.
func (c *Connection) Stop() {
	c.cancel()
	c.transport.CloseIdleConnections()
}

// Reconnect ends what is open. Every watch goes on, over another connection, from the version that
// was read last.
func (c *Connection) Reconnect() { c.transport.current.Load().dialer.CloseAll() }

// Wait returns when everything that Connect started has ended.
func (c *Connection) Wait() { c.done.Wait() }

// Verified reports whether everything was listed and the MemberRecord is the
// expected one. It stays true when the peer can no longer be read, as after its
// token was revoked: what was read last remains valid.
func (c *Connection) Verified() bool { return c.verified.Load() }

// Current reports whether the connection is Verified and no watch fails that this requires. What
// was listed before a watch failed may lack what another connection has read meanwhile.
func (c *Connection) Current() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// State is the present one.
func (c *Connection) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Watching reports whether a watch of the peer's Lease is open, as far as known. A
// watch that failed is restarted by its reflector.
func (c *Connection) Watching() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.feeds.leases.failure == Failure{}
}

// Reported reports whether the peer reported on everything and all of it was read, or it is
// known why it cannot be.
func (c *Connection) Reported() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reported
}

// refresh computes verified, current and state, and notifies the owner of a change. Once all required
// feeds were listed, a record that is absent is missing; once the reports were, an absent one
// means that the peer has published none.
func (c *Connection) refresh() {
	c.mu.Lock()
	before, was := c.state, c.verified.Load()
	now := !slices.ContainsFunc(c.feeds.all(), func(f *feed) bool { return f.isRequired() && !f.listed.Load() })
	record, _ := cached[*exchangev1alpha1.MemberRecord](c.feeds.members, string(c.opts.ID))
	member := Failure{}
	if now {
		member = c.checkMember(record)
	}
	if !was && (now && member == Failure{} || c.verifications.waits) && !c.allows(&c.verifications) {
		// Whether it is valid just now is no news until the pause is over.
		member = Failure{model.ReasonLimitExceeded, fmt.Sprintf("MemberRecord %s/%s: keeps changing between valid and not; it is read again within %v; remedy: find out what changes it in cluster %s",
			c.feeds.members.namespace, c.opts.ID, c.opts.Limits.Pause, c.opts.ID)}
	}
	now = now && member == Failure{}
	c.state.Problem = c.currentProblem(member)
	if record != nil {
		version, drained := model.OneLine(record.Spec.Version, maxVersion), model.Bound(record.Annotations[model.AnnotationDrained], maxDrained)
		if (version != before.Version || drained != before.Drained) && c.allows(&c.statements) {
			c.state.Version, c.state.Drained = version, drained
		}
	}
	if c.state.Problem.Reason == ReasonUnreachable && before.Problem.Reason == ReasonUnreachable {
		c.state.Problem = before.Problem // the text of the error differs with each attempt
	}
	c.verified.Store(now)
	wasCurrent := c.current
	c.current = now && !slices.ContainsFunc(c.feeds.all(), func(f *feed) bool { return f.isRequired() && f.failure != Failure{} })
	changed := was != now || wasCurrent != c.current || before != c.state
	reported := c.feeds.reports.listed.Load() && !c.catchingUp || c.feeds.reports.failure != Failure{}
	reported = reported && (c.reported || c.allows(&c.reports))
	notify := now && reported && !c.reported // before, no report is readable
	c.reported = reported
	c.mu.Unlock()
	if changed {
		c.opts.Hooks.State(c)
	}
	if notify {
		c.opts.Hooks.Changed(model.MemberChange{ID: c.opts.ID, What: model.ReportChanged})
	}
}

// allows reports whether something that is seldom may happen now. If not, refresh is called
// again later. It needs mu.
func (c *Connection) allows(s *seldom) bool {
	if s.waits || s.limiter.Allow() {
		return !s.waits
	}
	s.waits = true
	c.done.Go(func() {
		if notify.Await(c.ctx, time.After(c.opts.Limits.Pause)) {
			c.mu.Lock()
			s.waits = false
			c.mu.Unlock()
			c.refresh()
		}
	})
	return false
}

// currentProblem is the first that there is: what keeps everything from being read, then
// that of the MemberRecord, then what keeps only a part from being read.
func (c *Connection) currentProblem(member Failure) Failure {
	for _, f := range c.feeds.all() {
		if !f.isRequired() && member != (Failure{}) {
			break
		}
		if f.failure != (Failure{}) {
			return f.failure
		}
	}
	return member
}

// result records the result of a list or watch.
func (f *feed) result(ctx context.Context, err error) {
	// A version that the server has forgotten makes the reflector start over, which is no
	// failure of the peer.
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // or the connection was stopped
	}
	c, failure := f.connection, Failure{}
	if err != nil {
		failure = describe(c.opts.ID, f, err)
	}
	c.mu.Lock()
	f.failure = failure
	c.mu.Unlock()
	c.refresh()
}

// checkMember compares the peer's record of itself, nil if there is none, with what is expected.
func (c *Connection) checkMember(record *exchangev1alpha1.MemberRecord) Failure {
	switch message, reused := exchange.MemberProblem(c.opts.ID, c.opts.ClusterSet, c.opts.ClusterUID, record); {
	case message == "":
		return Failure{}
	case reused:
		return Failure{ReasonClusterIDReused, message}
	default:
		return Failure{ReasonMemberUnverified, message}
	}
}

// confirmMember reads the MemberRecord again before a list of exports replaces an
// earlier one. If the exchange was emptied, or the address leads to another cluster
// now, the exports would otherwise seem missing before the MemberRecord is found to be
// missing or another one. An error keeps the list from being used.
func (c *Connection) confirmMember(ctx context.Context) error {
	if !c.verified.Load() {
		return nil // nothing is concluded from what it lacks
	}
	list, err := c.feeds.members.get(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var record *exchangev1alpha1.MemberRecord
	for _, one := range list.(*exchangev1alpha1.MemberRecordList).Items {
		if one.Name == string(c.opts.ID) {
			record = &one
		}
	}
	if p := c.checkMember(record); p != (Failure{}) {
		return errors.New(p.Message)
	}
	return nil
}

// Reasons for which a peer, or a part of what it publishes, cannot be read, beside
// InvalidRecord and LimitExceeded.
const (
	ReasonUnreachable      = "Unreachable"
	ReasonUnauthorized     = "Unauthorized"
	ReasonForbidden        = "Forbidden"
	ReasonNotInstalled     = "NotInstalled"
	ReasonMemberUnverified = "MemberUnverified"
	ReasonClusterIDReused  = "ClusterIDReused"
	ReasonHeartbeatMissing = "HeartbeatMissing"
)

// Failure is why a peer cannot be read, or is not Connected. Reason is one word;
// the zero value is no failure.
type Failure struct{ Reason, Message string }

// rejoin is the remedy for what joining makes.
const rejoin = "run kubectl comity join again"

// describe says why f cannot be read. It passes on no text of the peer's server,
// which would let a peer write into the events of this cluster.
func describe(id model.ClusterID, f *feed, err error) Failure {
	kept := "what was read before is kept"
	if f.without != "" {
		kept = "its exports are imported all the same, but " + f.without
	}
	failure := func(reason, problem, remedy string) Failure {
		return Failure{reason, fmt.Sprintf("%s in namespace %s of cluster %s: %s; %s; remedy: %s", f.kind, f.namespace, id, problem, kept, remedy)}
	}
	var status apierrors.APIStatus
	var limit *budget.Exceeded
	switch in := "in cluster " + string(id); {
	case errors.As(err, &limit):
		return failure(model.ReasonLimitExceeded, limit.Error()+", so nothing new is read", "find out why so much is published "+in+", and withdraw what is not needed")
	case errors.As(err, new(*json.UnmarshalTypeError)), errors.As(err, new(*time.ParseError)):
		return failure(model.ReasonInvalidRecord, "one of them holds a field of another type than expected, so that none can be read", "correct or delete that object "+in+", or run the same version of Comity in both")
	case apierrors.IsForbidden(err):
		return failure(ReasonForbidden, "reading is forbidden; expected the Role that joining makes", rejoin)
	case apierrors.IsUnauthorized(err):
		return failure(ReasonUnauthorized, "the token is not accepted (expired or revoked)", rejoin)
	case apierrors.IsNotFound(err):
		return failure(ReasonNotInstalled, "the kind is unknown there; expected Comity's CRDs, in this version", "install or upgrade Comity "+in)
	case errors.As(err, &status):
		return failure(ReasonUnreachable, fmt.Sprintf("the server answers %d; expected a list", status.Status().Code), "check that API server")
	}
	return failure(ReasonUnreachable, fmt.Sprintf("the server cannot be reached (%s)", model.OneLine(err.Error(), 200)), "check the address in the Secret of the Peer, and the network")
}
