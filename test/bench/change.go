// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/bench/fleet"
	"github.com/comity-mcs/comity/test/bench/result"
)

const (
	// perSlice is how many endpoints the EndpointSlice controller puts in one.
	perSlice = 100
	// largeChanges are made one after the other, each written before the next.
	largeChanges = 20
)

// change counts what is written when one endpoint of a large service changes,
// in the cluster where it changes and in two others.
func (b *bench) change(ctx context.Context) error {
	return b.with(ctx, fleet.Options{Size: 3}, func(ctx context.Context, f *fleet.Fleet) error {
		const service = "large"
		from, parts := f.Members[0], (b.endpoints+perSlice-1)/perSlice
		for n := range parts {
			if err := from.CreateSlice(ctx, fleet.Slice(namespace, service, n, n*perSlice, min(perSlice, b.endpoints-n*perSlice))); err != nil {
				return err
			}
		}
		if err := from.Export(ctx, namespace, service); err != nil {
			return err
		}
		for _, m := range f.Members {
			if err := b.awaitSlices(ctx, m, namespace, parts); err != nil {
				return err
			}
		}
		if err := settle(ctx, f); err != nil {
			return err
		}
		b.say("changing one of %d endpoints %d times", b.endpoints, largeChanges)
		begun := time.Now()
		for n := range largeChanges {
			if err := one(ctx, f, service, n%parts, fleet.Address(1<<18+n)); err != nil {
				return err
			}
		}
		if err := settle(ctx, f); err != nil {
			return err
		}
		out := result.Change{Endpoints: b.endpoints, Slices: parts, Changes: largeChanges, Clusters: len(f.Members), Writes: map[string]int{}}
		for _, m := range f.Members {
			writes, err := m.AgentWrites(begun)
			if err != nil {
				return err
			}
			for _, w := range writes {
				where := "import"
				if strings.HasPrefix(w.Namespace, model.ExchangeNamespace(model.ClusterID(m.ID()))) {
					where = "exchange"
				}
				out.Writes[fmt.Sprintf("%s: %s %s (%s)", m.ID(), w.Verb, w.Resource, where)]++
			}
		}
		b.results.Change = &out
		return nil
	})
}

// one changes the first endpoint of one slice and waits until every cluster has it.
func one(ctx context.Context, f *fleet.Fleet, service string, part int, address string) error {
	slices := f.Members[0].Typed.DiscoveryV1().EndpointSlices(namespace)
	name := fmt.Sprintf("%s-%05d", service, part)
	source, err := slices.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	source.Endpoints[0].Addresses[0] = address
	if _, err := slices.Update(ctx, source, metav1.UpdateOptions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	for _, m := range f.Members {
		for !has(ctx, m, service, address) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("endpoint %s is not in %s: %w", address, m.ID(), ctx.Err())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

func has(ctx context.Context, m *fleet.Member, service, address string) bool {
	list, err := m.Typed.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: model.LabelServiceName + "=" + service})
	if err != nil {
		return false
	}
	for _, s := range list.Items {
		if first(s) == address {
			return true
		}
	}
	return false
}

func first(s discoveryv1.EndpointSlice) string {
	if len(s.Endpoints) == 0 {
		return ""
	}
	return s.Endpoints[0].Addresses[0]
}
