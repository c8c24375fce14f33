// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/bench/fleet"
)

// changeTimeout bounds one change; a hundredth of it is slow.
const changeTimeout = 30 * time.Second

// way is the slice of one Service that changes in the first cluster, and where
// copies of it arrive.
type way struct {
	service string
	from    *fleet.Member
	source  *discoveryv1.EndpointSlice
	next    int
	// remote is every other cluster, local the first one itself. Comity and the full
	// relay write to both, the other relays to one.
	remote, local route
}

// route is where copies arrive, and how long they took until the last one did.
type route struct {
	arrived []<-chan arrival
	took    []time.Duration
}

// arrival is a slice as a watch delivered it.
type arrival struct {
	slice *discoveryv1.EndpointSlice
	at    time.Time
}

// open makes the source slice, and for Comity Service and export, and waits
// until it is everywhere.
func (w *way) open(ctx context.Context, f *fleet.Fleet) error {
	w.from = f.Members[0]
	selector := model.LabelServiceName + "=" + w.service
	if w.service != throughComity {
		selector = labelRelayed + "=" + w.service
	}
	for i, m := range f.Members {
		to, skip := &w.remote, throughLocalRelay
		if i == 0 {
			to, skip = &w.local, throughRelay
		}
		if w.service == skip {
			continue
		}
		arrived, err := watch(ctx, m.Typed, namespace, selector)
		if err != nil {
			return err
		}
		to.arrived = append(to.arrived, arrived)
	}
	if w.service == throughComity {
		if err := w.from.Export(ctx, namespace, w.service); err != nil {
			return err
		}
	}
	var err error
	w.source, err = w.from.Typed.DiscoveryV1().EndpointSlices(namespace).Create(ctx, fleet.Slice(namespace, w.service, 0, w.next, 1), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return w.await(ctx, time.Now())
}

// change replaces the address of the endpoint, and measures from the answer of
// the API server to the moment at which the last copy shows it.
func (w *way) change(ctx context.Context) error {
	w.next++
	w.source.Endpoints[0].Addresses[0] = fleet.Address(w.next)
	written, err := w.from.Typed.DiscoveryV1().EndpointSlices(namespace).Update(ctx, w.source, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	answered := time.Now()
	w.source = written
	return w.await(ctx, answered)
}

// await waits until every copy has the current address.
func (w *way) await(ctx context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, changeTimeout, fmt.Errorf("not copied within %v", changeTimeout))
	defer cancel()
	for _, to := range []*route{&w.remote, &w.local} {
		if len(to.arrived) == 0 {
			continue
		}
		last, err := to.await(ctx, fleet.Address(w.next))
		if err != nil {
			return err
		}
		to.took = append(to.took, last.Sub(since))
	}
	return nil
}

// await gives when the last copy had an address.
func (r *route) await(ctx context.Context, address string) (last time.Time, err error) {
	for i := 0; i < len(r.arrived); {
		select {
		case got, open := <-r.arrived[i]:
			if !open {
				return last, errors.New("a watch ended")
			}
			if len(got.slice.Endpoints) != 1 || got.slice.Endpoints[0].Addresses[0] != address {
				continue
			}
			if got.at.After(last) {
				last = got.at
			}
			i++
		case <-ctx.Done():
			return last, fmt.Errorf("copy %d of %d: %w", i+1, len(r.arrived), context.Cause(ctx))
		}
	}
	return last, nil
}

// watch delivers the slices of a namespace that a selector finds, as they change.
func watch(ctx context.Context, client kubernetes.Interface, namespace, selector string) (<-chan arrival, error) {
	w, err := client.DiscoveryV1().EndpointSlices(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	out := make(chan arrival, 16)
	go func() {
		defer close(out)
		defer w.Stop()
		for event := range w.ResultChan() {
			at := time.Now()
			slice, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok {
				continue
			}
			select {
			case out <- arrival{slice, at}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}
