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

// way is one way from the first cluster to all others: the slice that changes,
// and what of it arrives.
type way struct {
	service string
	from    *fleet.Member
	source  *discoveryv1.EndpointSlice
	arrived []<-chan arrival // one for each other cluster
	next    int
	took    []time.Duration
}

// arrival is a slice of a way as a watch delivered it.
type arrival struct {
	slice *discoveryv1.EndpointSlice
	at    time.Time
}

// open makes the source slice, and for Comity Service and export, and waits
// until it is everywhere.
func (w *way) open(ctx context.Context, f *fleet.Fleet) error {
	w.from = f.Members[0]
	selector := model.LabelServiceName + "=" + w.service
	if w.service == throughRelay {
		selector = labelRelayed + "=" + w.service
	}
	for _, m := range f.Members[1:] {
		arrived, err := watch(ctx, m.Typed, namespace, selector)
		if err != nil {
			return err
		}
		w.arrived = append(w.arrived, arrived)
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
	_, err = w.await(ctx)
	return err
}

// change replaces the address of the endpoint and gives the time from the
// answer of the API server to the moment at which all other clusters show it.
func (w *way) change(ctx context.Context) (time.Duration, error) {
	w.next++
	w.source.Endpoints[0].Addresses[0] = fleet.Address(w.next)
	written, err := w.from.Typed.DiscoveryV1().EndpointSlices(namespace).Update(ctx, w.source, metav1.UpdateOptions{})
	if err != nil {
		return 0, err
	}
	answered := time.Now()
	w.source = written
	at, err := w.await(ctx)
	return at.Sub(answered), err
}

// await waits until every cluster has the current address, and gives when the
// last one showed it.
func (w *way) await(ctx context.Context) (time.Time, error) {
	timeout := time.NewTimer(changeTimeout)
	defer timeout.Stop()
	var last time.Time
	for i := 0; i < len(w.arrived); {
		select {
		case got, open := <-w.arrived[i]:
			if !open {
				return last, errors.New("a watch ended")
			}
			if len(got.slice.Endpoints) != 1 || got.slice.Endpoints[0].Addresses[0] != fleet.Address(w.next) {
				continue
			}
			if got.at.After(last) {
				last = got.at
			}
			i++
		case <-timeout.C:
			return last, fmt.Errorf("not in cluster %d after %v", i+2, changeTimeout)
		case <-ctx.Done():
			return last, context.Cause(ctx)
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
