// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Bounds on what one peer can cost us.
const (
	dialTimeout = 10 * time.Second
	// listTimeout bounds one page of a list; watches have none, and are ended
	// by the HTTP/2 health check when the peer falls silent.
	listTimeout = 60 * time.Second
	peerQPS     = 20
	peerBurst   = 40
)

// hooks is what a connection tells its owner. None may block.
type hooks struct {
	// key: an export, or a slice of it, changed.
	key func(types.NamespacedName)
	// namespace: a namespace of the peer came, went, or changed its identity.
	namespace func(string)
	// state: verified or the problem changed.
	state func(*connection)
	// rejected: a record was read that cannot be believed.
	rejected func(*connection, error)
}

// connection reads one peer with one set of credentials.
type connection struct {
	id    model.ClusterID
	self  model.ClusterID
	set   string
	log   logr.Logger
	hooks hooks

	// client is for token renewal; feeds have clients of their own type.
	config *rest.Config
	http   *http.Client
	feeds  feeds
	cancel context.CancelFunc
	done   sync.WaitGroup

	// verified: everything was read, and the MemberRecord is what it should be.
	verified atomic.Bool

	mu      sync.Mutex
	listed  bool // every feed delivered its first list
	failing map[*feed]failure
	member  string // what is wrong with the MemberRecord; empty if nothing
	problem failure
}

// failure is what keeps a feed or a peer from being read. Reason is one word.
type failure struct{ reason, message string }

// connect starts reading a peer. It returns at once; whether the peer can be
// reached shows in the hooks.
func connect(ctx context.Context, id, self model.ClusterID, set string, config *rest.Config, log logr.Logger, h hooks) (*connection, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "comity/" + string(self)
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(peerQPS, peerBurst)
	config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: the credentials cannot be used", id)
	}
	// An API server does not redirect; one that does would make this pod ask
	// servers of its choosing, with the token attached.
	httpClient.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	ctx, cancel := context.WithCancel(klog.NewContext(ctx, log))
	c := &connection{id: id, self: self, set: set, log: log, hooks: h, config: config, http: httpClient,
		cancel: cancel, failing: map[*feed]failure{}, member: "has not been read yet"}
	if c.feeds, err = newFeeds(c); err != nil {
		cancel()
		return nil, fmt.Errorf("cluster %s: %w", id, err)
	}
	for _, f := range c.feeds.all() {
		c.done.Go(func() { f.informer.RunWithContext(ctx) })
	}
	c.done.Go(func() { c.awaitLists(ctx) })
	return c, nil
}

// stop ends all reading; wait returns when nothing runs any more.
func (c *connection) stop() {
	c.cancel()
	c.http.CloseIdleConnections()
}

func (c *connection) wait() { c.done.Wait() }

// awaitLists marks the moment from which an absent record means a withdrawn one.
func (c *connection) awaitLists(ctx context.Context) {
	for _, f := range c.feeds.all() {
		select {
		case <-f.registration.HasSyncedChecker().Done():
		case <-ctx.Done():
			return
		}
	}
	c.mu.Lock()
	c.listed = true
	c.mu.Unlock()
	c.refresh()
}

// refresh works out verified and problem, and tells the owner of a change.
func (c *connection) refresh() {
	c.mu.Lock()
	c.member = c.checkMember()
	before, was := c.problem, c.verified.Load()
	c.problem = c.currentProblem()
	now := c.listed && c.member == ""
	c.verified.Store(now)
	changed := was != now || before.reason != c.problem.reason
	c.mu.Unlock()
	if changed {
		c.hooks.state(c)
	}
}

func (c *connection) currentProblem() failure {
	for _, f := range c.feeds.all() {
		if p, bad := c.failing[f]; bad {
			return p
		}
	}
	if c.listed && c.member != "" {
		return failure{ReasonMemberUnverified, c.member}
	}
	return failure{}
}

// checkMember says what is wrong with the peer's record of itself. A record of
// another id or set means that the Secret leads to the wrong cluster.
func (c *connection) checkMember() string {
	namespace := model.ExchangeNamespace(c.id)
	name := namespace + "/" + string(c.id)
	item, found, err := c.feeds.members.informer.GetIndexer().GetByKey(name)
	record, ok := item.(*exchangev1alpha1.MemberRecord)
	switch {
	case err != nil || !found || !ok:
		return fmt.Sprintf("MemberRecord %s: does not exist in the peer; expected it once the peer has published all its exports; "+
			"remedy: check that Comity runs there with cluster id %q", name, c.id)
	case record.Spec.ClusterID != string(c.id):
		return fmt.Sprintf("MemberRecord %s, spec.clusterID: is %s; expected %q; remedy: correct the label %s of the peer Secret, or its kubeconfig",
			name, quoteShort(record.Spec.ClusterID), c.id, model.LabelClusterID)
	case record.Spec.ClusterSet != c.set:
		return fmt.Sprintf("MemberRecord %s, spec.clusterSet: is %s; expected %q; remedy: join clusters of one set only",
			name, quoteShort(record.Spec.ClusterSet), c.set)
	}
	return ""
}

// feedResult notes how a list or watch of f went.
func (c *connection) feedResult(ctx context.Context, f *feed, err error) {
	if ctx.Err() != nil {
		return // we hung up ourselves
	}
	// A version that the server has forgotten, or a streamed list that it does
	// not know, makes the informer start over; neither is a failure of the peer.
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) {
		return
	}
	c.mu.Lock()
	if err == nil {
		delete(c.failing, f)
	} else {
		c.failing[f] = describe(c.id, f, err)
	}
	c.mu.Unlock()
	c.refresh()
}

// state is the connection's problem, and whether what it holds may be used.
func (c *connection) state() (problem failure, verified bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem, c.verified.Load()
}
