// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// Exports are what the synced peers export as key, sorted by cluster. Records
// that are not valid are left out; they were reported when they were read. So are
// exports of namespaces that are not accepted from the peer.
func (s *Set) Exports(key types.NamespacedName) []model.Export {
	var out []model.Export
	for _, r := range s.view.Load().members {
		if r.from == nil || r.accepted.refuses(key.Namespace) {
			continue
		}
		if export, ok := r.from.Export(key); ok {
			out = append(out, export)
		}
	}
	return out
}

// Refusals are what the synced peers export as key in records that are not valid, or
// from a namespace that is not accepted from the peer, sorted by cluster.
func (s *Set) Refusals(key types.NamespacedName) []model.Refusal {
	var out []model.Refusal
	for _, r := range s.view.Load().members {
		if r.from == nil {
			continue
		}
		if refusal, ok := r.refusal(key); ok {
			out = append(out, refusal)
		}
	}
	return out
}

// refusal is why the export of key is not imported whatever others export.
func (r *snapshot) refusal(key types.NamespacedName) (model.Refusal, bool) {
	if export, ok := r.from.Export(key); ok && r.accepted.refuses(key.Namespace) {
		return model.Refusal{Cluster: r.ID, ExportUID: export.UID, Reason: model.ReasonNamespaceNotAccepted, Peer: string(r.ID)}, true
	}
	return r.from.Refusal(key)
}

// Slices are the EndpointSlice copies that cluster publishes for key, sorted by
// name, without the parts that may not be imported; the problems name those. A copy
// of which nothing may be imported has no address type and no endpoints. One that is
// large is read again when the notification of its last change comes, which waits if
// the peer changes it often.
// None if the cluster is not synced, or the namespace is not accepted from it.
func (s *Set) Slices(cluster model.ClusterID, key types.NamespacedName) ([]*discoveryv1.EndpointSlice, []model.Problem) {
	for _, r := range s.view.Load().members {
		if r.ID != cluster || r.from == nil || r.accepted.refuses(key.Namespace) {
			continue
		}
		filter := s.filter(r)
		var out []*discoveryv1.EndpointSlice
		var dropped exchange.Report
		copies, more := r.from.Slices(key, s.pacer.waits(cluster, key))
		for _, slice := range copies {
			clean, report := s.cleaned.clean(slice, filter)
			dropped.Add(report)
			if clean == nil { // it exists, so it was not lost; without a type nothing is made of it
				clean = &discoveryv1.EndpointSlice{ObjectMeta: slice.ObjectMeta}
			}
			out = append(out, clean)
		}
		return out, slices.Concat(dropped.Problems(cluster, filter), moreSlices(cluster, key, more), limitProblems(r))
	}
	return nil, nil
}

// moreSlices is the problem that a peer publishes more slices of an export than are read.
func moreSlices(cluster model.ClusterID, key types.NamespacedName, more int) []model.Problem {
	if more == 0 {
		return nil
	}
	return []model.Problem{{Reason: model.ReasonLimitExceeded, Cluster: cluster, Message: fmt.Sprintf(
		"cluster %s publishes %d EndpointSlices of %s more than the %d that are read of one export, so these are not imported; "+
			"remedy: export fewer EndpointSlices of it in cluster %s, such as by several Services",
		cluster, more, key, exchange.MaxSliceNames, cluster)}}
}

// limitProblems are the limits that a peer exceeds, so that not everything that it
// publishes is read.
func limitProblems(r snapshot) []model.Problem {
	problem, _ := r.from.State()
	if problem.Reason != remote.ReasonLimitExceeded {
		return nil
	}
	return []model.Problem{{Reason: model.ReasonLimitExceeded, Cluster: r.ID, Message: problem.Message}}
}

// Filter says which addresses of a peer may be imported, whether the peer is synced or
// not. It is false if that is not known: there is no such Peer, or its list cannot be read.
func (s *Set) Filter(cluster model.ClusterID) (exchange.Filter, bool) {
	for _, r := range s.view.Load().members {
		if r.ID == cluster && r.accepted.known {
			return s.filter(r), true
		}
	}
	return exchange.Filter{}, false
}

func (s *Set) filter(r snapshot) exchange.Filter {
	local := s.opts.LocalCluster()
	return exchange.Filter{Accepted: r.accepted.cidrs, PodCIDRs: local.PodCIDRs, ServiceCIDRs: local.ServiceCIDRs}
}

// Withdrawals are what the synced peers state about exports of key that they withdrew,
// sorted by cluster.
func (s *Set) Withdrawals(key types.NamespacedName) []model.Withdrawal {
	var out []model.Withdrawal
	for _, r := range s.view.Load().members {
		if r.from != nil {
			out = append(out, r.from.Withdrawals(key)...)
		}
	}
	return out
}

// NotAccepted are the peers, synced or not, of which the local administrator accepts
// no exports of the namespace of key, sorted.
func (s *Set) NotAccepted(key types.NamespacedName) (out []model.ClusterID) {
	for _, r := range s.view.Load().members {
		if r.accepted.refuses(key.Namespace) {
			out = append(out, r.ID)
		}
	}
	return out
}

// Reports are the reports of the synced peers on importing this cluster's export
// of key, sorted by cluster.
func (s *Set) Reports(key types.NamespacedName) []model.Report {
	var out []model.Report
	for _, r := range s.view.Load().members {
		if r.from == nil {
			continue
		}
		if report, ok := r.from.Report(key); ok {
			out = append(out, report)
		}
	}
	return out
}

// Namespace says of every member whether it has a namespace called name.
func (s *Set) Namespace(name string) []model.MemberNamespace {
	view := s.view.Load().members
	out := make([]model.MemberNamespace, len(view))
	for i, r := range view {
		out[i] = model.MemberNamespace{Cluster: r.ID, Presence: model.NamespaceUnknown}
		if r.from != nil {
			out[i] = r.from.Namespace(name)
		}
	}
	return out
}

// Keys lists what every synced peer publishes a record of, each once, in no order.
func (s *Set) Keys() []types.NamespacedName {
	keys := map[types.NamespacedName]struct{}{}
	for _, r := range s.view.Load().members {
		if r.from == nil {
			continue
		}
		for _, key := range r.from.Keys() {
			keys[key] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(keys))
}
