// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/bench/fleet"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
)

// makers is how many objects are made at once.
const makers = 16

// each calls make for every number from first up to but not including end, some
// at once, and reports the progress.
func (b *bench) each(ctx context.Context, first, end int, what string, do func(ctx context.Context, n int) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(makers)
	told := time.Now()
	for n := first; n < end && groupCtx.Err() == nil; n++ {
		group.Go(func() error { return do(groupCtx, n) })
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			b.say("%d of %d %s", n-first, end-first, what)
		}
	}
	return group.Wait()
}

// load makes exports until there are count, of which have exist, and waits until
// the second cluster has them all and nothing moves any more.
func (b *bench) load(ctx context.Context, f *fleet.Fleet, have, count int) error {
	if count <= have {
		return nil
	}
	b.say("exporting %d more Services", count-have)
	from := f.Members[0]
	err := b.each(ctx, have, count, "Services", func(ctx context.Context, n int) error {
		name := fmt.Sprintf("other-%05d", n)
		if err := from.CreateSlice(ctx, fleet.Slice(namespace, name, 0, n, 1)); err != nil {
			return err
		}
		return from.Export(ctx, namespace, name)
	})
	if err != nil {
		return err
	}
	if err := b.awaitSlices(ctx, f.Members[1], namespace, count); err != nil {
		return err
	}
	return settle(ctx, f)
}

// awaitSlices waits until a cluster has so many derived slices in a namespace;
// "" is all namespaces.
func (b *bench) awaitSlices(ctx context.Context, m *fleet.Member, namespace string, count int) error {
	found, told := 0, time.Now()
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		// From the API server's cache, and no more than is needed to count.
		list, err := m.Typed.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: model.LabelServiceName, ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		found = len(list.Items)
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			b.say("%d of %d slices are in %s", found, count, m.ID())
		}
		return found >= count, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d slices are in %s: %w", found, count, m.ID(), err)
	}
	return nil
}

// settle waits until no agent has anything to do.
func settle(ctx context.Context, f *fleet.Fleet) error {
	for _, m := range f.Members {
		if err := m.WaitIdle(ctx, "import", 0); err != nil {
			return err
		}
	}
	return nil
}

// writesOf lists what all agents wrote since a moment, without what the relay
// wrote in their name.
func writesOf(f *fleet.Fleet, since time.Time) ([]controlplane.Write, error) {
	var all []controlplane.Write
	for _, m := range f.Members {
		writes, err := m.AgentWrites(since)
		if err != nil {
			return nil, err
		}
		for _, w := range writes {
			if !strings.HasPrefix(w.Name, relayedPrefix) {
				all = append(all, w)
			}
		}
	}
	return all, nil
}
