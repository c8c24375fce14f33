// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package verdict remembers what policy said of a stored export for as long as
// nothing that it was said of has changed.
//
// It takes an Admitter and names the versions of all that the Admitter reads:
// the export, its Service, its Namespace, the policies and the peers' namespaces.
// It gives the Admitter's verdict, and asks it only when one of them differs, so
// that an endpoint that changes costs no evaluation. It decides nothing, and
// never keeps a verdict that was not reached.
package verdict

import (
	"context"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/loop/internal/memory"
	"github.com/comity-mcs/comity/sync/model"
)

// Admitter says whether policy lets a stored export be published.
type Admitter interface {
	Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict
}

// Options configure a Cache; all are required.
type Options struct {
	// Admitter must read nothing beside the export and what is below, and the
	// objects through Reader.
	Admitter Admitter
	// Reader answers from a cache.
	Reader client.Reader
	// Policies names the set of policies in use, as verdicts do in their Digest:
	// other policies, another name; "" while there is none.
	Policies func() string
}

// Cache is an Admitter that remembers. All methods may be called from any goroutine.
type Cache struct {
	opts    Options
	peers   atomic.Uint64
	members *memory.Members

	mu   sync.Mutex
	kept map[types.NamespacedName]entry
}

// New returns a Cache that remembers nothing.
func New(opts Options) *Cache {
	return &Cache{opts: opts, members: memory.NewMembers(), kept: map[types.NamespacedName]entry{}}
}

type entry struct {
	basis   basis
	verdict decision.Verdict
}

// version names one state of one object.
type version struct {
	uid      types.UID
	resource string
}

// basis is all that a verdict rests on.
type basis struct {
	export, service, namespace version
	policies                   string
	peers                      uint64
}

// PeersChanged tells that a peer came or went, or that what one publishes of
// its namespaces changed. It must be told before those who will ask again.
func (c *Cache) PeersChanged() { c.peers.Add(1) }

// MemberChanged reports whether verdicts may differ after a change of a peer,
// which they do not by its being heard of less. If so, PeersChanged is told.
func (c *Cache) MemberChanged(id model.ClusterID, members []model.Member) bool {
	if c.members.LostSight(id, members) {
		return false
	}
	c.PeersChanged()
	return true
}

// Admit is the verdict on an export as it is stored now. What was read before
// the Admitter was asked names the verdict, whatever it read itself: versions
// never come back, so if something changed in between, nobody asks for that name
// again. Sets of policies do come back, but a verdict says which one reached it.
func (c *Cache) Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
	key := client.ObjectKeyFromObject(export)
	now, ok := c.basis(ctx, export)
	if !ok {
		return c.opts.Admitter.Admit(ctx, export)
	}
	c.mu.Lock()
	kept, has := c.kept[key]
	c.mu.Unlock()
	if has && kept.basis == now {
		return kept.verdict
	}
	verdict := c.opts.Admitter.Admit(ctx, export)
	reached := verdict.Outcome == decision.Allowed || verdict.Outcome == decision.Denied
	if reached && verdict.Digest == now.policies {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kept[key] = entry{now, verdict}
	}
	return verdict
}

// Forget drops what is kept of an export that is gone.
func (c *Cache) Forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, key)
}

// basis is false if it cannot be told, or if an object is not there: that is no
// version, and comes back.
func (c *Cache) basis(ctx context.Context, export *mcsv1beta1.ServiceExport) (basis, bool) {
	b := basis{export: version{export.UID, export.ResourceVersion}, policies: c.opts.Policies(), peers: c.peers.Load()}
	if export.UID == "" || export.ResourceVersion == "" || b.policies == "" {
		return basis{}, false
	}
	ok := c.read(ctx, client.ObjectKeyFromObject(export), &corev1.Service{}, &b.service) &&
		c.read(ctx, types.NamespacedName{Name: export.Namespace}, &corev1.Namespace{}, &b.namespace)
	return b, ok
}

func (c *Cache) read(ctx context.Context, key types.NamespacedName, into client.Object, as *version) bool {
	if err := c.opts.Reader.Get(ctx, key, into, &client.GetOptions{UnsafeDisableDeepCopy: &always}); err != nil {
		return false
	}
	*as = version{into.GetUID(), into.GetResourceVersion()}
	return true
}

// always: only versions are read of the objects, so they need not be copied.
var always = true
