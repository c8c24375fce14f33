// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/bench/fleet"
)

// attack is what a member does whose agent somebody has replaced.
type attack struct {
	member   *fleet.Member
	exchange string
	number   atomic.Int64
	// records counts the ExportRecords that were created.
	records atomic.Int64
	// writes counts those that its API server accepted at full speed.
	writes atomic.Int64
}

// export publishes the same Service as the other member, with a small slice.
func (a *attack) export(ctx context.Context) error {
	_, err := a.member.Typed.DiscoveryV1().EndpointSlices(a.exchange).Create(ctx, a.slice(a.exchange, "within", 1, 1), metav1.CreateOptions{})
	return errors.Join(err, a.member.Exchange.Create(ctx, a.record(a.exchange, throughComity)))
}

func (a *attack) record(in, service string) *exchangev1alpha1.ExportRecord {
	return &exchangev1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: model.RecordName(namespace, service)},
		Spec: exchangev1alpha1.ExportRecordSpec{
			Service:           exchangev1alpha1.ServiceReference{Namespace: namespace, Name: service},
			ExportUID:         "11111111-1111-4111-8111-111111111111",
			ExportedAt:        metav1.Now(),
			Slices:            []string{"within", "large-100", "large-1000"},
			ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}}},
		},
	}
}

// slice is a slice as a member publishes it; each time with other addresses.
func (a *attack) slice(in, source string, endpoints, addresses int) *discoveryv1.EndpointSlice {
	s := fleet.Slice(in, throughComity, 0, 0, endpoints)
	s.Name = model.RecordSliceName(namespace, source)
	s.Labels = map[string]string{
		"service.kubernetes.io/headless": "", discoveryv1.LabelManagedBy: model.ManagedBy,
		model.LabelExportNamespace: namespace, model.LabelExportName: throughComity,
	}
	s.Annotations = map[string]string{model.AnnotationSourceSlice: source}
	first := int(a.number.Add(1)) % 1000
	for i := range s.Endpoints {
		s.Endpoints[i].Addresses = nil
		for n := range addresses {
			s.Endpoints[i].Addresses = append(s.Endpoints[i].Addresses, fleet.Address(1<<17+first+i*addresses+n))
		}
		if addresses > 1 { // as long as the limits allow
			s.Endpoints[i].Hostname, s.Endpoints[i].Zone = ptr.To(strings.Repeat("h", 63)), ptr.To(strings.Repeat("z", 63))
			s.Endpoints[i].NodeName = ptr.To(strings.Repeat("n", 253))
		}
	}
	return s
}

// budget changes a slice of 100 endpoints five times a second, which is within the
// limits.
func (a *attack) budget(ctx context.Context) {
	for tick := time.NewTicker(200 * time.Millisecond); ctx.Err() == nil; {
		_ = a.put(ctx, a.slice(a.exchange, "within", 100, 1)) // the next one comes soon
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
		}
	}
}

// beat renews the Lease of the member, whose agent is stopped.
func (a *attack) beat(ctx context.Context) {
	leases := a.member.Typed.CoordinationV1().Leases(a.exchange)
	for tick := time.NewTicker(5 * time.Second); ctx.Err() == nil; {
		if lease, err := leases.Get(ctx, a.member.ID(), metav1.GetOptions{}); err == nil {
			now := metav1.NowMicro()
			lease.Spec.RenewTime = &now
			_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{}) // the next one comes soon
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
		}
	}
}

func (a *attack) put(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	slices := a.member.Typed.DiscoveryV1().EndpointSlices(s.Namespace)
	_, err := slices.Update(ctx, s, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = slices.Create(ctx, s, metav1.CreateOptions{})
	}
	return err
}

// count notes a write; one that failed is followed by a pause.
func (a *attack) count(err error) {
	if err == nil {
		a.writes.Add(1)
		return
	}
	time.Sleep(10 * time.Millisecond)
}

// rewrite rewrites a slice without pause. One of 1,000 endpoints has 430 kB and is refused;
// one of 100 is as large as can be imported.
func (a *attack) rewrite(ctx context.Context, in string, endpoints int) {
	for ctx.Err() == nil {
		a.count(a.put(ctx, a.slice(in, fmt.Sprintf("large-%d", endpoints), endpoints, hostileAddresses)))
	}
}

// create creates records without pause.
func (a *attack) create(ctx context.Context, in string) {
	for n := a.records.Add(1); n <= hostileRecords && ctx.Err() == nil; n = a.records.Add(1) {
		a.count(a.member.Exchange.Create(ctx, a.record(in, fmt.Sprintf("many-%05d", n))))
	}
}

// flap makes a MemberRecord valid and invalid in turn, without pause.
func (a *attack) flap(ctx context.Context, in string) {
	key := a.member.ID()
	valid := &exchangev1alpha1.MemberRecord{}
	if err := a.member.Exchange.Get(ctx, client.ObjectKey{Namespace: a.exchange, Name: key}, valid); err != nil {
		return
	}
	defer func() { // leave it as it was
		a.count(a.set(context.WithoutCancel(ctx), in, valid, valid.Spec.ClusterSet))
	}()
	for n := 0; ctx.Err() == nil; n++ {
		a.count(a.set(ctx, in, valid, strings.Repeat("x", n%2)+valid.Spec.ClusterSet))
	}
}

func (a *attack) set(ctx context.Context, in string, valid *exchangev1alpha1.MemberRecord, clusterSet string) error {
	now := &exchangev1alpha1.MemberRecord{}
	err := a.member.Exchange.Get(ctx, client.ObjectKey{Namespace: in, Name: valid.Name}, now)
	if apierrors.IsNotFound(err) {
		return a.member.Exchange.Create(ctx, &exchangev1alpha1.MemberRecord{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: valid.Name}, Spec: valid.Spec})
	}
	if err != nil {
		return err
	}
	now.Spec.ClusterSet = clusterSet
	return a.member.Exchange.Update(ctx, now)
}
