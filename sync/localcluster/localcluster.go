// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package localcluster reads the properties of this cluster on which importing
// depends: the IP families of its Services, its zones, and its address ranges.
//
// It takes Nodes, ServiceCIDRs and the Service default/kubernetes from the
// manager's cache, or flags in their place; it gives a model.LocalCluster that is kept
// current on every replica. It writes nothing and never guesses: what it has not
// read is empty. It follows KEP-1880 (ServiceCIDR) for the order of families.
package localcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// patience is how long imports wait for what is known of this cluster.
const patience = 30 * time.Second

// defaultService is the one Service that every cluster has.
var defaultService = types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// Watcher watches the properties of this cluster. All methods may be called from any goroutine.
type Watcher struct {
	given   model.LocalCluster
	cache   cache.Cache
	known   chan struct{}
	ready   func()                             // closes known, once
	now     atomic.Pointer[model.LocalCluster] // nil before everything was read
	changed notify.Notifier
}

// SetupWithManager adds a Watcher to mgr, on every replica. The agent needs get,
// list and watch on nodes, services and servicecidrs.networking.k8s.io.
//
// Of given, PodCIDRs and ServiceCIDRs are this cluster's address ranges, if the
// administrator sets them: not every network plugin gives Pods addresses of their Node's
// range, and old clusters have no ServiceCIDR. The order of ServiceCIDRs is that of the families.
func SetupWithManager(mgr ctrl.Manager, given model.LocalCluster) (*Watcher, error) {
	known := make(chan struct{})
	h := &Watcher{
		given: given, cache: mgr.GetCache(),
		known: known, ready: sync.OnceFunc(func() { close(known) }),
	}
	return h, mgr.Add(h)
}

// Get returns the current properties; none before everything was read.
func (h *Watcher) Get() model.LocalCluster {
	return ptr.Deref(h.now.Load(), model.LocalCluster{})
}

// Known is closed once everything was read, or that took too long.
func (h *Watcher) Known() <-chan struct{} { return h.known }

// Changed notifies whenever Get returns something else than before, the first time
// included.
func (h *Watcher) Changed() *notify.Notifier { return &h.changed }

// NeedLeaderElection is false: peers are read on every replica, and their
// addresses are checked against these.
func (h *Watcher) NeedLeaderElection() bool { return false }

// Start keeps Watcher current until ctx ends. The informers are made here and not
// before: those that exist when a manager starts are waited for, and a missing
// right to read Nodes must not keep the whole agent from starting.
func (h *Watcher) Start(ctx context.Context) error {
	late := time.AfterFunc(patience, func() {
		if h.now.Load() != nil {
			return
		}
		ctrl.Log.WithName("localcluster").Error(errors.New("they are still unknown; check that the agent can read Nodes and ServiceCIDRs"),
			"starting without the properties of this cluster")
		h.ready()
	})
	defer late.Stop()
	kinds, hasCIDRs := []client.Object{&corev1.Node{}}, len(h.given.ServiceCIDRs) == 0
	if hasCIDRs {
		kinds = append(kinds, &corev1.Service{}, &networkingv1.ServiceCIDR{})
	}
	wake := notify.NewWake()
	// Of Services, one matters.
	matters := func(obj any) bool {
		service, is := obj.(*corev1.Service)
		return !is || client.ObjectKeyFromObject(service) == defaultService
	}
	for _, kind := range kinds {
		err := wake.Watch(ctx, h.cache, kind, matters)
		if _, is := kind.(*networkingv1.ServiceCIDR); is && meta.IsNoMatchError(err) { // it exists since Kubernetes 1.33
			hasCIDRs = false
		} else if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	for again := true; again; again = wake.Wait(ctx) {
		if err := h.refresh(ctx, hasCIDRs); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (h *Watcher) refresh(ctx context.Context, hasCIDRs bool) error {
	var nodes corev1.NodeList
	var cidrs networkingv1.ServiceCIDRList // empty where the kind does not exist yet
	var service corev1.Service             // empty if it was not found
	err := h.cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy)
	if hasCIDRs {
		err = cmp.Or(err, h.cache.List(ctx, &cidrs, client.UnsafeDisableDeepCopy))
	}
	if len(h.given.ServiceCIDRs) == 0 {
		err = cmp.Or(err, client.IgnoreNotFound(h.cache.Get(ctx, defaultService, &service)))
	}
	if err != nil {
		return fmt.Errorf("read Nodes, ServiceCIDRs and the Service %s: %w", defaultService, err)
	}
	now := compute(h.given, nodes.Items, cidrs.Items, service.Spec.IPFamilies)
	before := h.now.Swap(&now)
	if before == nil {
		h.ready()
	}
	if !reflect.DeepEqual(before, &now) {
		h.changed.All()
	}
	return nil
}

// TrimNode is a cache transform that keeps only the fields of a Node that Watcher reads.
// Most of a Node is its status, which changes every few minutes.
func TrimNode(obj any) (any, error) {
	node, is := obj.(*corev1.Node)
	if !is { // a tombstone, which is about to be forgotten anyway
		return obj, nil
	}
	out := &corev1.Node{TypeMeta: node.TypeMeta}
	out.Name, out.UID, out.ResourceVersion, out.DeletionTimestamp = node.Name, node.UID, node.ResourceVersion, node.DeletionTimestamp
	if zone := node.Labels[corev1.LabelTopologyZone]; zone != "" {
		out.Labels = map[string]string{corev1.LabelTopologyZone: zone}
	}
	out.Spec.PodCIDRs = node.Spec.PodCIDRs
	return out, nil
}

// defaultServiceCIDR is the ServiceCIDR that the API server makes of its own
// flags. It alone decides which families Services can have, and in what order;
// others only add room.
const defaultServiceCIDR = "kubernetes"

// compute returns the properties of the cluster; local are those given, which override what
// was read. A ServiceCIDR that is being deleted may still have addresses in use. Without the
// default one, the families are those of the one Service that every cluster has.
func compute(local model.LocalCluster, nodes []corev1.Node, cidrs []networkingv1.ServiceCIDR, ofService []corev1.IPFamily) model.LocalCluster {
	var podCIDRs []netip.Prefix
	for i := range nodes {
		if zone := nodes[i].Labels[corev1.LabelTopologyZone]; zone != "" {
			local.Zones = append(local.Zones, zone)
		}
		podCIDRs = append(podCIDRs, model.ReadPrefixes(nodes[i].Spec.PodCIDRs...)...)
	}
	slices.Sort(local.Zones)
	local.Zones = slices.Compact(local.Zones)
	if len(local.PodCIDRs) == 0 {
		local.PodCIDRs = podCIDRs
	}
	local.Families = families(local.ServiceCIDRs)
	if len(local.ServiceCIDRs) == 0 {
		local.Families = ofService
		for _, cidr := range cidrs {
			prefixes := model.ReadPrefixes(cidr.Spec.CIDRs...)
			if cidr.Name == defaultServiceCIDR && len(prefixes) > 0 {
				local.Families = families(prefixes)
			}
			local.ServiceCIDRs = append(local.ServiceCIDRs, prefixes...)
		}
	}
	local.PodCIDRs, local.ServiceCIDRs = aggregate(local.PodCIDRs), aggregate(local.ServiceCIDRs)
	return local
}

// families are those of prefixes, each once, in their order.
func families(prefixes []netip.Prefix) []corev1.IPFamily {
	var out []corev1.IPFamily
	for _, p := range prefixes {
		family := corev1.IPv6Protocol
		if p.Addr().Is4() {
			family = corev1.IPv4Protocol
		}
		if !slices.Contains(out, family) {
			out = append(out, family)
		}
	}
	return out
}

// aggregate is the shortest sorted list of prefixes that holds the same
// addresses: each address of each peer is looked up in it, and a cluster of
// thousands of Nodes has as many pod ranges, most of them neighbors.
func aggregate(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range sorted {
		if n := len(out); n > 0 && out[n-1].Overlaps(p) {
			continue // held by the one before, which begins no later and is no smaller
		}
		out = append(out, p)
		for len(out) > 1 {
			joined, ok := join(out[len(out)-2], out[len(out)-1])
			if !ok {
				break
			}
			out = append(out[:len(out)-2], joined)
		}
	}
	return out
}

// join is the prefix of which a and b are the halves, in this order.
func join(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() != b.Bits() || a.Bits() == 0 || a == b {
		return netip.Prefix{}, false
	}
	both, err := a.Addr().Prefix(a.Bits() - 1)
	return both, err == nil && both.Addr() == a.Addr() && both.Contains(b.Addr())
}
