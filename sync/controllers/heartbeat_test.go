// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/comity-mcs/comity/sync/model"
)

// server is an API server that counts requests and can be out of order.
type server struct {
	client.Client
	reads, writes atomic.Int64
	missing, down atomic.Bool
	behind        atomic.Bool // an import or a report waits
}

func newServer(objects ...client.Object) *server {
	s := &server{}
	fail := func() error {
		if s.down.Load() {
			return errors.New("down")
		}
		return nil
	}
	s.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			s.reads.Add(1)
			return errors.Join(fail(), c.Get(ctx, key, o, opts...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			s.writes.Add(1)
			if err := fail(); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			s.writes.Add(1)
			if err := fail(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	return s
}

func (s *server) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := s.Get(t.Context(), types.NamespacedName{Namespace: "comity-b", Name: "b"}, lease); err != nil {
		t.Fatal(err)
	}
	return lease
}

// beating runs a heartbeat of cluster b in fake time.
func beating(t *testing.T, s *server, test func(h *heartbeat)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHeartbeat(&base{Options: Options{
			Self: "b", ClusterUID: "ours", HeartbeatInterval: 10 * time.Second, Clock: clock.RealClock{}, Registry: prometheus.NewRegistry(),
			Exchange: &Exchange{Client: s, Live: s, Problem: func(context.Context, string) string {
				if s.missing.Load() {
					return "missing"
				}
				return ""
			}},
		}})
		h.isBehind = s.behind.Load
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = h.Start(ctx) })
		synctest.Wait()
		test(h)
		cancel()
		running.Wait()
	})
}

// value reads a metric with that label value, if any.
func value(t *testing.T, h *heartbeat, name, label string) float64 {
	t.Helper()
	families, err := h.Registry.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Without this the exporters wrote twice into the status of each export that was made while
// the agent here did not run: that it has not reported yet, and what it reports.
func TestTheLeaseSaysUntilWhenReportsAreMissingBecauseOfAStart(t *testing.T) {
	s := newServer()
	s.behind.Store(true)
	beating(t, s, func(*heartbeat) {
		isCatchingUp := func() bool { return s.lease(t).Annotations[model.AnnotationCatchingUp] != "" }
		if pass(20 * time.Second); !isCatchingUp() {
			t.Error("it has imported everything while imports wait")
		}
		s.behind.Store(false)
		if pass(10 * time.Second); isCatchingUp() {
			t.Error("it never has reported on everything")
		}
		s.behind.Store(true)
		if pass(10 * time.Second); isCatchingUp() {
			t.Error("one change later takes it back")
		}
	})
}

func TestHeartbeatRenewsWithOneRequest(t *testing.T) {
	s := newServer()
	beating(t, s, func(h *heartbeat) {
		first := s.lease(t)
		if !h.holdsPlace() {
			t.Error("FAULT 43: with its own Lease, what is in its exchange namespaces is not its own")
		}
		if *first.Spec.HolderIdentity != "b" || *first.Spec.LeaseDurationSeconds != 40 || first.Annotations[model.AnnotationClusterUID] != "ours" {
			t.Errorf("lease %+v", first)
		}
		s.reads.Store(0)
		s.writes.Store(0)
		pass(100 * time.Second)
		if s.reads.Load() != 0 || s.writes.Load() != 10 {
			t.Errorf("%d reads and %d writes in ten beats", s.reads.Load(), s.writes.Load())
		}
		if got := s.lease(t).Spec.RenewTime.Sub(first.Spec.RenewTime.Time); got != 100*time.Second {
			t.Errorf("renewed %s after the first time", got)
		}
	})
}

func TestHeartbeatFindsItsLeaseAgain(t *testing.T) {
	s := newServer()
	beating(t, s, func(*heartbeat) {})
	uid := s.lease(t).ResourceVersion
	beating(t, s, func(h *heartbeat) {
		if s.lease(t).ResourceVersion == uid {
			t.Error("a new leader does not renew")
		}
		if err := s.Delete(t.Context(), s.lease(t)); err != nil {
			t.Fatal(err)
		}
		pass(10*time.Second + 2*2500*time.Millisecond) // finds it gone, tries sooner
		s.lease(t)
		if n := value(t, h, "comity_heartbeat_renewals_total", "failed"); n != 1 {
			t.Errorf("%v failures", n)
		}
	})
}

func TestHeartbeatTriesSoonerAfterAFailure(t *testing.T) {
	s := newServer()
	beating(t, s, func(*heartbeat) {
		s.down.Store(true)
		pass(20 * time.Second)
		s.down.Store(false)
		before := time.Now()
		pass(2500 * time.Millisecond)
		if renewed := s.lease(t).Spec.RenewTime; renewed.Time.Before(before) {
			t.Errorf("not renewed since %s", before.Sub(renewed.Time))
		}
	})
}

func TestHeartbeatWaitsForItsNamespaceQuietly(t *testing.T) {
	s := newServer()
	s.missing.Store(true)
	beating(t, s, func(h *heartbeat) {
		pass(time.Minute)
		if s.reads.Load()+s.writes.Load() != 0 || h.reported != "" {
			t.Errorf("%d reads, %d writes, told %q", s.reads.Load(), s.writes.Load(), h.reported)
		}
		s.missing.Store(false)
		pass(10 * time.Second)
		s.lease(t)
	})
}

func TestHeartbeatDoesNotFight(t *testing.T) {
	for name, annotations := range map[string]map[string]string{
		"another cluster": {model.AnnotationClusterUID: "theirs"}, "nobody knows who": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b", Name: "b", Annotations: annotations},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("b")},
			})
			beating(t, s, func(h *heartbeat) {
				pass(10 * time.Minute)
				if h.holdsPlace() {
					t.Error("what is beside the Lease of another cluster is its own")
				}
				if s.writes.Load() != 0 || value(t, h, "comity_duplicate_cluster_id", "") != 1 || h.reported != "duplicate" {
					t.Errorf("%d writes, metric %v, told %q", s.writes.Load(), value(t, h, "comity_duplicate_cluster_id", ""), h.reported)
				}
				if err := s.Delete(t.Context(), s.lease(t)); err != nil {
					t.Fatal(err)
				}
				pass(10 * time.Second)
				if s.lease(t).Annotations[model.AnnotationClusterUID] != "ours" || value(t, h, "comity_duplicate_cluster_id", "") != 0 || h.reported != "" {
					t.Error("does not go on once the other is gone")
				}
			})
		})
	}
}

// TestHeartbeatNoticesWhoTakesOver: a second cluster with our id, in a hub, that
// deleted our Lease to make its own.
func TestHeartbeatNoticesWhoTakesOver(t *testing.T) {
	s := newServer()
	beating(t, s, func(h *heartbeat) {
		theirs := s.lease(t)
		theirs.Annotations[model.AnnotationClusterUID] = "theirs"
		if err := s.Update(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if s.lease(t).Annotations[model.AnnotationClusterUID] != "theirs" || value(t, h, "comity_duplicate_cluster_id", "") != 1 {
			t.Error("it is fought over")
		}
	})
}
