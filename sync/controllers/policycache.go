// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
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
	// Published reports whether an export is published in the exchange.
	Published func(ctx context.Context, export *mcsv1beta1.ServiceExport) (bool, error)
}

// PolicyCache is an Admitter that remembers each answer for as long as nothing
// that it depends on has changed: the export, whether it is published, its Service,
// its Namespace, the policies and the namespaces of the other members. So a changed endpoint costs no
// evaluation. It never keeps an answer that was not reached. All methods may be
// called from any goroutine.
type PolicyCache struct {
	verdictCache

	opts  PolicyCacheOptions
	peers atomic.Uint64
}

// NewPolicyCache returns a PolicyCache that remembers nothing.
func NewPolicyCache(opts PolicyCacheOptions) *PolicyCache {
	return &PolicyCache{opts: opts}
}

// PeersChanged drops every answer: a peer came, went or changed, but for its liveness, or
// what one publishes of its namespaces changed. Call it before those are notified who evaluate again.
func (c *PolicyCache) PeersChanged() { c.peers.Add(1) }

// Admit is the answer of the policies to an export as it is stored now. The key of
// an answer is read before the policies are evaluated, whatever they read
// themselves: a resourceVersion never comes back, so if an object changed in
// between, nobody asks for that key again. A set of policies does come back, and so does
// whether the export is published, but a Verdict says with which it was reached.
func (c *PolicyCache) Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
	key, policies := client.ObjectKeyFromObject(export), c.opts.Policies()
	inputs, published := c.inputs(ctx, export, policies)
	if verdict, has := c.find(key, "", inputs); has {
		return verdict
	}
	verdict := c.opts.Evaluate(ctx, export)
	if verdict.Published == published {
		c.keep(key, "", inputs, policies, verdict)
	}
	return verdict
}

// Forget drops what is kept of an export that is gone.
func (c *PolicyCache) Forget(key types.NamespacedName) { c.forget(key) }

// inputs are the versions of the objects and what else an answer depends on, and whether the
// export is published. They are not known if that is not, or if an object cannot be read or
// does not exist: its absence has no resourceVersion.
func (c *PolicyCache) inputs(ctx context.Context, export *mcsv1beta1.ServiceExport, policies string) (inputs verdictInputs, published bool) {
	peers := c.peers.Load()
	if export.UID == "" || export.ResourceVersion == "" || policies == "" {
		return verdictInputs{}, false
	}
	published, err := c.opts.Published(ctx, export)
	if err != nil {
		return verdictInputs{}, false
	}
	withoutCopy := &client.GetOptions{UnsafeDisableDeepCopy: new(true)} // nothing but the version is read of the objects
	service, namespace := &corev1.Service{}, &corev1.Namespace{}
	err = errors.Join(
		c.opts.Reader.Get(ctx, client.ObjectKeyFromObject(export), service, withoutCopy),
		c.opts.Reader.Get(ctx, types.NamespacedName{Name: export.Namespace}, namespace, withoutCopy))
	if err != nil {
		return verdictInputs{}, false
	}
	return inputsOf(policies, peers, published, export.UID, export.ResourceVersion,
		service.UID, service.ResourceVersion, namespace.UID, namespace.ResourceVersion), published
}
