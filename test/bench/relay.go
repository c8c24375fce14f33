// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/test/bench/fleet"
)

const (
	// relayNamespace is the relay's exchange in the first cluster.
	relayNamespace = "bench-relay"
	labelRelayed   = "bench.comity.dev/relayed"
	// relayedPrefix begins the names of the copies, before that of their Service.
	relayedPrefix = "relayed-"
)

// relay is the least that does what Comity does for an endpoint. Remote: watch the
// slice in a, apply a copy of it there, watch that, apply it in every other
// cluster. Local: watch another slice in a, apply a copy of it there. Full: both for
// a third slice, at the same time, as Comity does it.
// It has no cache, no queue, no policy and no status, and it knows three slices.
// Its credentials are those of the agents: a cluster's administrator, whose
// requests are neither authorized nor queued, would compare with nothing that
// anybody could deploy.
type relay struct {
	mu  sync.Mutex
	err error
}

func startRelay(ctx context.Context, f *fleet.Fleet) (*relay, error) {
	a := f.Members[0]
	if err := a.CreateNamespace(ctx, relayNamespace); err != nil {
		return nil, err
	}
	r := &relay{}
	for _, first := range []struct{ service, to string }{
		{throughRelay, relayNamespace}, {throughLocalRelay, namespace}, {throughFullRelay, relayNamespace}, {throughFullRelay, namespace},
	} {
		source, err := watch(ctx, a.AsAgent, namespace, discoveryv1.LabelServiceName+"="+first.service)
		if err != nil {
			return nil, err
		}
		go r.carry(ctx, source, first.service, a, first.to)
	}
	for _, m := range f.Members[1:] {
		for _, service := range []string{throughRelay, throughFullRelay} {
			copies, err := watch(ctx, a.AsAgent, relayNamespace, labelRelayed+"="+service)
			if err != nil {
				return nil, err
			}
			go r.carry(ctx, copies, service, m, namespace)
		}
	}
	return r, nil
}

// carry writes every slice of a Service that arrives into a namespace of a cluster.
func (r *relay) carry(ctx context.Context, from <-chan arrival, service string, to *fleet.Member, namespace string) {
	for got := range from {
		if err := apply(ctx, to, relayed(got.slice, service, namespace)); err != nil && ctx.Err() == nil {
			r.mu.Lock()
			r.err = fmt.Errorf("the relay's write into %s of %s: %w", namespace, to.ID(), err)
			r.mu.Unlock()
			return
		}
	}
}

// failure is what ended the relay; nil while it runs.
func (r *relay) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func relayed(from *discoveryv1.EndpointSlice, service, namespace string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: relayedPrefix + service, Labels: map[string]string{
			labelRelayed: service, discoveryv1.LabelManagedBy: "bench",
		}},
		AddressType: from.AddressType, Endpoints: from.Endpoints, Ports: from.Ports,
	}
}

func apply(ctx context.Context, to *fleet.Member, slice *discoveryv1.EndpointSlice) error {
	text, err := json.Marshal(slice)
	if err != nil {
		return err
	}
	_, err = to.AsAgent.DiscoveryV1().EndpointSlices(slice.Namespace).Patch(ctx, slice.Name, types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: "bench", Force: ptr.To(true)})
	return err
}
