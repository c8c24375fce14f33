// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// PolicyCacheOptions configure a PolicyCache; all are required.
type PolicyCacheOptions struct {
	// Evaluate must read nothing beside the export and what is below, and the
	// objects through Reader.
	Evaluate func(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict
	// Reader reads from a cache.
	Reader client.Reader
	// Policies names the set of policies in use, as a Verdict does in its Digest;
	// empty while there is none.
	Policies func() string
	// Published reports whether an export is published in the exchange; when nil, none does.
	Published func(ctx context.Context, export *mcsv1beta1.ServiceExport) (bool, error)
}

// PolicyCache is an Admitter that remembers each answer for as long as nothing
// that it depends on has changed: the export, whether it is published, its Service,
// its Namespace, the policies and the namespaces of the other members. So a changed endpoint costs no
// evaluation. It never keeps an answer that was not reached. All methods may be
// called from any goroutine.
type PolicyCache struct {
	opts    PolicyCacheOptions
	peers   atomic.Uint64
	members *memberChanges

	mu   sync.Mutex
	kept map[types.NamespacedName]policyAnswer
}

// NewPolicyCache returns a PolicyCache that remembers nothing.
func NewPolicyCache(opts PolicyCacheOptions) *PolicyCache {
	return &PolicyCache{opts: opts, members: newMemberChanges(), kept: map[types.NamespacedName]policyAnswer{}}
}

type policyAnswer struct {
	inputs  policyInputs
	verdict decision.Verdict
}

// objectVersion names one state of one object.
type objectVersion struct {
	uid             types.UID
	resourceVersion string
}

// policyInputs name the state of everything that an answer depends on.
type policyInputs struct {
	export, service, namespace objectVersion
	policies                   string
	peers                      uint64
	published                  bool
}

// PeersChanged drops every answer: a peer came or went, or what one publishes of
// its namespaces changed. Call it before those are notified who evaluate again.
func (c *PolicyCache) PeersChanged() { c.peers.Add(1) }

// MemberChanged reports whether answers may differ after a change of a member,
// which they do not after a change of its liveness. If so, it is PeersChanged.
func (c *PolicyCache) MemberChanged(id model.ClusterID, members []model.Member) bool {
	if c.members.onlyLivenessWorsened(id, members) {
		return false
	}
	c.PeersChanged()
	return true
}

// Admit is the answer of the policies to an export as it is stored now. The key of
// an answer is read before the policies are evaluated, whatever they read
// themselves: a resourceVersion never comes back, so if an object changed in
// between, nobody asks for that key again. A set of policies does come back, and so does
// whether the export is published, but a Verdict says with which it was reached.
func (c *PolicyCache) Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
	key := client.ObjectKeyFromObject(export)
	now, ok := c.inputs(ctx, export)
	if !ok {
		return c.opts.Evaluate(ctx, export)
	}
	c.mu.Lock()
	kept, has := c.kept[key]
	c.mu.Unlock()
	if has && kept.inputs == now {
		return kept.verdict
	}
	verdict := c.opts.Evaluate(ctx, export)
	reached := verdict.Outcome == decision.Allowed || verdict.Outcome == decision.Denied
	if reached && verdict.Digest == now.policies && verdict.Published == now.published {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kept[key] = policyAnswer{now, verdict}
	}
	return verdict
}

// Forget drops what is kept of an export that is gone.
func (c *PolicyCache) Forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, key)
}

// inputs is false if it is not known whether the export is published, or if an object
// cannot be read or does not exist: its absence has
// no resourceVersion.
func (c *PolicyCache) inputs(ctx context.Context, export *mcsv1beta1.ServiceExport) (policyInputs, bool) {
	in := policyInputs{export: objectVersion{export.UID, export.ResourceVersion}, policies: c.opts.Policies(), peers: c.peers.Load()}
	if export.UID == "" || export.ResourceVersion == "" || in.policies == "" {
		return policyInputs{}, false
	}
	if c.opts.Published != nil {
		var err error
		if in.published, err = c.opts.Published(ctx, export); err != nil {
			return policyInputs{}, false
		}
	}
	ok := c.version(ctx, client.ObjectKeyFromObject(export), &corev1.Service{}, &in.service) &&
		c.version(ctx, types.NamespacedName{Name: export.Namespace}, &corev1.Namespace{}, &in.namespace)
	return in, ok
}

func (c *PolicyCache) version(ctx context.Context, key types.NamespacedName, object client.Object, out *objectVersion) bool {
	withoutCopy := true // nothing but the version is read of the object
	if err := c.opts.Reader.Get(ctx, key, object, &client.GetOptions{UnsafeDisableDeepCopy: &withoutCopy}); err != nil {
		return false
	}
	*out = objectVersion{object.GetUID(), object.GetResourceVersion()}
	return true
}
