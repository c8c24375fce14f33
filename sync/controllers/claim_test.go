// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// joining is the heartbeat of one of several clusters with the id b in one hub.
func joining(t *testing.T, hub client.Client, uid types.UID) *heartbeat {
	t.Helper()
	h := newHeartbeat(&base{hub: true, pass: &decide.FirstPass{}, beatSoon: make(chan struct{}, 1), Options: Options{
		Peers: &ownIDPeers{},
		Self:  "b", ClusterUID: uid, HeartbeatInterval: 10 * time.Second, Clock: clock.RealClock{},
		Exchange: &Exchange{Client: hub, Live: hub, Problem: func(context.Context, string) string { return "" }},
	}})
	return h
}

// FAULT 38: two clusters with one id join an empty hub at the same moment.
func TestFault38OneOfTwoClustersWithOneIDMayPublish(t *testing.T) {
	scheme := inHubScheme(t)
	for range 20 {
		// Both find no Lease before either creates one.
		var read sync.WaitGroup
		read.Add(2)
		hub := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if _, is := o.(*coordinationv1.Lease); is {
					read.Done()
					read.Wait()
				}
				return c.Create(ctx, o, opts...)
			},
		}).Build()
		both := []*heartbeat{joining(t, hub, "one"), joining(t, hub, "two")}
		for _, h := range both {
			if h.problem(t.Context(), "comity-b") == "" {
				t.Fatal("it may publish before it holds the place")
			}
		}
		var done sync.WaitGroup
		for _, h := range both {
			done.Go(func() { h.beat(t.Context()) })
		}
		done.Wait()
		may := 0
		for _, h := range both {
			h.beat(t.Context()) // the one whose create failed reads who it is
			problem := h.problem(t.Context(), "comity-b-to-a")
			if problem == "" {
				may++
				continue
			}
			for _, part := range []string{"Lease comity-b/b in the exchange is of another cluster", "one", "two", "give one of the two another id"} {
				if !strings.Contains(problem, part) {
					t.Errorf("got %q, want it to say %q", problem, part)
				}
			}
		}
		if may != 1 {
			t.Fatalf("%d of the two clusters may publish", may)
		}
	}
}

// FAULT 38: where the exchange may be another one, the place must be held again.
func TestFault38AnotherExchangeIsNotHeldYet(t *testing.T) {
	hub := fake.NewClientBuilder().WithScheme(inHubScheme(t)).Build()
	h := joining(t, hub, "one")
	h.beat(t.Context())
	if problem := h.problem(t.Context(), "comity-b"); problem != "" {
		t.Fatal(problem)
	}
	h.exchangeChanged()
	if problem := h.problem(t.Context(), "comity-b"); problem == "" || len(h.beatSoon) != 1 {
		t.Errorf("problem %q; heartbeats due: %d", problem, len(h.beatSoon))
	}
	h.beat(t.Context())
	if problem := h.problem(t.Context(), "comity-b"); problem != "" {
		t.Errorf("after the next heartbeat: %s", problem)
	}
}

func inHubScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, exchangev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}
