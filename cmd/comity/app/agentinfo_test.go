// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/comity-mcs/comity/sync/model"
)

// leases is an API server with one Lease that counts what is written.
type leases struct {
	client.Client
	patches int
	refuse  error
}

var leaderLease = types.NamespacedName{Namespace: "comity-system", Name: model.LeaderLease}

func newLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: leaderLease.Namespace, Name: leaderLease.Name, Annotations: map[string]string{"other": "kept"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("pod_uid")},
	}
}

func newLeases(objects ...client.Object) *leases {
	l := &leases{}
	l.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			l.patches++
			if l.refuse != nil {
				return l.refuse
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	return l
}

func (l *leases) annotations(t *testing.T) map[string]string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := l.Get(t.Context(), leaderLease, lease); err != nil {
		t.Fatal(err)
	}
	return lease.Annotations
}

// agentInfoInterval is how often the Lease is read.
const agentInfoInterval = 10 * time.Second

// infoOf keeps the Lease of l in fake time.
func infoOf(l *leases) *agentInfo {
	return &agentInfo{
		reader: l, writer: l, lease: leaderLease, interval: agentInfoInterval, log: funcr.New(func(string, string) {}, funcr.Options{}),
		info: model.AgentInfo{ID: "a", Set: "production", Version: "v1.0.0", Mode: model.ExchangeMesh, ServiceAccount: "comity"},
	}
}

func TestLeaderDescribesItselfOnItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeases(newLease())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- infoOf(l).Start(ctx) }()
		synctest.Wait()
		got, err := model.ParseAgentInfo(l.annotations(t))
		if err != nil {
			t.Fatal(err)
		}
		want := model.AgentInfo{ID: "a", Set: "production", Version: "v1.0.0", Mode: model.ExchangeMesh, ServiceAccount: "comity"}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("annotations differ (-want +got):\n%s", diff)
		}
		if l.annotations(t)["other"] != "kept" {
			t.Error("an annotation of somebody else is gone")
		}

		time.Sleep(10 * agentInfoInterval) // of the bubble: no time passes
		synctest.Wait()
		if l.patches != 1 {
			t.Errorf("got %d patches of a Lease that nobody changed, want 1", l.patches)
		}

		// What deletes the Lease makes leader election create one without annotations.
		if err := l.Delete(t.Context(), newLease()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(agentInfoInterval) // of the bubble: no time passes
		if err := l.Create(t.Context(), newLease()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(agentInfoInterval) // of the bubble: no time passes
		synctest.Wait()
		if _, err := model.ParseAgentInfo(l.annotations(t)); err != nil {
			t.Errorf("the new Lease: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got %v at the end, want none", err)
		}
	})
}

func TestRefusedPatchIsSaidOnceAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeases(newLease())
		l.refuse = errors.New("forbidden")
		var lines []string
		info := infoOf(l)
		info.log = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		go func() { _ = info.Start(t.Context()) }()
		time.Sleep(3 * agentInfoInterval) // of the bubble: no time passes
		synctest.Wait()
		if len(lines) != 1 || !strings.Contains(lines[0], "forbidden") {
			t.Errorf("got lines %q, want one that says why", lines)
		}
		l.refuse = nil
		time.Sleep(agentInfoInterval) // of the bubble: no time passes
		synctest.Wait()
		if _, err := model.ParseAgentInfo(l.annotations(t)); err != nil {
			t.Error(err)
		}
	})
}

func TestDescriptionSaysWhatTheFlagsSay(t *testing.T) {
	t.Setenv("POD_SERVICE_ACCOUNT", "from-env")
	o := DefaultOptions()
	o.PodCIDRs, o.ServiceCIDRs, o.ExchangeKubeconfig = []string{"10.0.0.0/16", "fd00::/48"}, []string{"10.96.0.0/12"}, "/hub"
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	got := describe(o, identity{cluster: "a", set: "production"})
	want := model.AgentInfo{
		ID: "a", Set: "production", Version: version, Mode: model.ExchangeHub, ServiceAccount: "from-env",
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00::/48")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("description differs (-want +got):\n%s", diff)
	}
}
