// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

const (
	namespace = "bench"
	// throughComity and throughRelay are the Services whose slices travel on
	// either way.
	throughComity, throughRelay = "comity", "relay"
	// changeTimeout bounds one change; a hundredth of it is slow.
	changeTimeout = 30 * time.Second
)

// addresses are where endpoints of the benchmark are.
var addresses = netip.MustParsePrefix("10.96.0.0/12")

// measure makes the changes, on one way after the other, and prints the table.
func (p *pair) measure(ctx context.Context, o options) error {
	for _, m := range []*member{p.a, p.b} {
		if err := m.createNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	loaded, err := p.load(ctx, o.exports)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := p.startRelay(ctx, o.verb)
	if err != nil {
		return err
	}
	ways := []*way{{service: throughComity}, {service: throughRelay}}
	for _, w := range ways {
		if err := w.open(ctx, p); err != nil {
			return err
		}
	}
	p.say("%d changes on each way, the first %d to warm up", o.warmup+o.changes, o.warmup)
	measured := time.Now()
	for n := range o.warmup + o.changes {
		if n == o.warmup {
			measured = time.Now()
		}
		// In turn, so that what else the machine does meets both.
		for _, w := range ways {
			took, err := w.change(ctx)
			if err := errors.Join(err, r.failure()); err != nil {
				return fmt.Errorf("change %d through %s: %w", n+1, w.service, err)
			}
			if n >= o.warmup {
				w.took = append(w.took, took)
			}
		}
	}
	writes, err := p.writes(measured)
	if err != nil {
		return err
	}
	return report{options: o, ways: ways, writes: writes, loaded: loaded}.print()
}

// way is one way from a to b: the slice that changes in a, and what of it
// arrives in b.
type way struct {
	service string
	a       *member
	source  *discoveryv1.EndpointSlice
	arrived <-chan arrival
	next    netip.Addr
	took    []time.Duration
}

// arrival is a slice of a way as b's watch delivered it.
type arrival struct {
	slice *discoveryv1.EndpointSlice
	at    time.Time
}

// open makes the source slice, and for Comity Service and export, and waits
// until it is in b.
func (w *way) open(ctx context.Context, p *pair) error {
	w.a, w.next = p.a, addresses.Addr()
	selector := model.LabelServiceName + "=" + w.service
	if w.service == throughRelay {
		selector = labelRelayed + "=" + w.service
	}
	var err error
	if w.arrived, err = p.b.watch(ctx, namespace, selector); err != nil {
		return err
	}
	if w.service == throughComity {
		if err := p.a.export(ctx, w.service); err != nil {
			return err
		}
	}
	w.source, err = p.a.typed.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice(w.service, w.address()), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = w.await(ctx)
	return err
}

// address moves on to the next address and gives it.
func (w *way) address() string {
	w.next = w.next.Next()
	return w.next.String()
}

// change replaces the address of the endpoint and gives the time from the
// answer of a's API server to the moment at which b's watch shows it.
func (w *way) change(ctx context.Context) (time.Duration, error) {
	w.source.Endpoints[0].Addresses[0] = w.address()
	written, err := w.a.typed.DiscoveryV1().EndpointSlices(namespace).Update(ctx, w.source, metav1.UpdateOptions{})
	if err != nil {
		return 0, err
	}
	answered := time.Now()
	w.source = written
	at, err := w.await(ctx)
	return at.Sub(answered), err
}

// await waits until b has the current address.
func (w *way) await(ctx context.Context) (time.Time, error) {
	timeout := time.NewTimer(changeTimeout)
	defer timeout.Stop()
	for {
		select {
		case got, open := <-w.arrived:
			if !open {
				return time.Time{}, errors.New("the watch in b ended")
			}
			if len(got.slice.Endpoints) == 1 && got.slice.Endpoints[0].Addresses[0] == w.next.String() {
				return got.at, nil
			}
		case <-timeout.C:
			return time.Time{}, fmt.Errorf("not in b after %v", changeTimeout)
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
}

// watch delivers the slices of a namespace that a selector finds, as they change.
func (m *member) watch(ctx context.Context, namespace, selector string) (<-chan arrival, error) {
	w, err := m.typed.DiscoveryV1().EndpointSlices(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: selector})
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

// load exports Services beside the one that is measured, and gives how long it
// took until b has all of them.
func (p *pair) load(ctx context.Context, count int) (time.Duration, error) {
	if count == 0 {
		return 0, nil
	}
	p.say("exporting %d Services", count)
	begun := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for n := range count {
		group.Go(func() error {
			name := fmt.Sprintf("other-%d", n)
			if err := p.a.export(groupCtx, name); err != nil {
				return err
			}
			_, err := p.a.typed.DiscoveryV1().EndpointSlices(namespace).Create(groupCtx, slice(name, addresses.Addr().Next().String()), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	found := 0
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := p.b.typed.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: model.LabelServiceName})
		if err != nil {
			return false, err
		}
		found = len(list.Items)
		return found >= count, nil
	})
	if err != nil {
		return 0, fmt.Errorf("%d of %d exports arrived in b: %w", found, count, err)
	}
	return time.Since(begun), nil
}

// export makes a Service and its ServiceExport.
func (m *member) export(ctx context.Context, name string) error {
	_, err := m.typed.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return m.exports.Create(ctx, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// slice is one as the EndpointSlice controller writes it, with one endpoint.
func slice(service, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-x", Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
}
