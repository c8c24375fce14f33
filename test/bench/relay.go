// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	verbApply, verbUpdate = "apply", "update"
	// relayNamespace is the relay's exchange in a.
	relayNamespace = "bench-relay"
	labelRelayed   = "bench.comity.dev/relayed"
)

// relay is the least that does what Comity does for an endpoint: watch the slice
// in a, write a copy of it there, watch that, write it into b. It has no cache,
// no queue, no policy and no status, and it knows one slice.
type relay struct {
	mu  sync.Mutex
	err error
}

func (p *pair) startRelay(ctx context.Context, verb string) (*relay, error) {
	if err := p.a.createNamespace(ctx, relayNamespace); err != nil {
		return nil, err
	}
	r := &relay{}
	source, err := p.a.watch(ctx, namespace, discoveryv1.LabelServiceName+"="+throughRelay)
	if err != nil {
		return nil, err
	}
	copies, err := p.a.watch(ctx, relayNamespace, labelRelayed+"="+throughRelay)
	if err != nil {
		return nil, err
	}
	go r.carry(ctx, source, p.a, relayNamespace, verb)
	go r.carry(ctx, copies, p.b, namespace, verb)
	return r, nil
}

// carry writes every slice that arrives into a namespace of a cluster.
func (r *relay) carry(ctx context.Context, from <-chan arrival, to *member, namespace, verb string) {
	for got := range from {
		wanted := relayed(got.slice, namespace)
		var err error
		if verb == verbApply {
			err = apply(ctx, to, wanted)
		} else {
			err = update(ctx, to, wanted)
		}
		if err != nil && ctx.Err() == nil {
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

func relayed(from *discoveryv1.EndpointSlice, namespace string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "relayed", Labels: map[string]string{
			labelRelayed: throughRelay, discoveryv1.LabelManagedBy: "bench",
		}},
		AddressType: from.AddressType, Endpoints: from.Endpoints, Ports: from.Ports,
	}
}

func apply(ctx context.Context, to *member, slice *discoveryv1.EndpointSlice) error {
	text, err := json.Marshal(slice)
	if err != nil {
		return err
	}
	_, err = to.typed.DiscoveryV1().EndpointSlices(slice.Namespace).Patch(ctx, slice.Name, types.ApplyPatchType, text,
		metav1.PatchOptions{FieldManager: "bench", Force: ptr.To(true)})
	return err
}

// update needs no version: the relay is the only writer.
func update(ctx context.Context, to *member, slice *discoveryv1.EndpointSlice) error {
	slices := to.typed.DiscoveryV1().EndpointSlices(slice.Namespace)
	_, err := slices.Update(ctx, slice, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(ctx, slice, metav1.CreateOptions{})
	}
	return err
}
