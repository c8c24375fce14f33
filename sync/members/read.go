// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

// Read is what every member, and every cluster that was removed, is known to publish of
// key, sorted by cluster. Of a member that is not synced, only what its Peer says is known.
// Records that are not valid are left out; they were reported when they were read. Slices
// are read only if asked for.
func (s *Set) Read(key types.NamespacedName, withSlices bool) []exchange.Published {
	view := s.view.Load()
	out := make([]exchange.Published, 0, len(view.members)+len(view.removed))
	for i := range view.members {
		out = append(out, s.published(&view.members[i], key, withSlices))
	}
	for _, id := range view.removed {
		out = append(out, exchange.Published{Member: model.Member{ID: id}, Removed: true})
	}
	return out
}

func (s *Set) published(m *snapshot, key types.NamespacedName, withSlices bool) exchange.Published {
	out := exchange.Published{Member: m.member(), Known: true, NotAccepted: m.accepted.refuses(key.Namespace), Namespace: m.namespace(key.Namespace)}
	if m.accepted.known {
		local := s.opts.LocalCluster()
		out.Accepted = &exchange.Filter{Accepted: m.accepted.cidrs, PodCIDRs: local.PodCIDRs, ServiceCIDRs: local.ServiceCIDRs}
	}
	if m.from == nil {
		return out
	}
	export, has := m.from.Export(key)
	switch {
	case has && out.NotAccepted:
		out.Refusal = &model.Refusal{Cluster: m.ID, ExportUID: export.UID, Reason: model.ReasonNamespaceNotAccepted}
	case has:
		out.Export = &export
		if withSlices {
			out.Slices, out.Problems = m.slices(key, *out.Accepted)
		}
	default:
		out.Refusal = m.from.Refusal(key)
	}
	out.Withdrawals = m.from.Withdrawals(key)
	// One that ceases to be synced while it is read may have seemed to export nothing.
	out.Synced = m.from.Verified()
	if !out.Synced {
		out.Export = nil
	}
	return out
}

// slices are the EndpointSlice copies that a member publishes for key, sorted by name,
// without the parts that may not be imported; the problems name those.
func (m *snapshot) slices(key types.NamespacedName, filter exchange.Filter) (out []*discoveryv1.EndpointSlice, problems []model.Problem) {
	var dropped exchange.Report
	copies, more := m.from.Slices(key)
	for _, slice := range copies {
		clean, report := exchange.CleanSlice(slice, filter)
		dropped = dropped.Add(report)
		if clean == nil {
			clean = &discoveryv1.EndpointSlice{ObjectMeta: slice.ObjectMeta}
		}
		out = append(out, clean)
	}
	problems = dropped.Problems(m.ID, filter)
	if more > 0 {
		problems = append(problems, model.Problem{Reason: model.ReasonLimitExceeded, Cluster: m.ID, Message: fmt.Sprintf(
			"cluster %s publishes %d EndpointSlices of %s more than the %d that are read of one export; remedy: export it by several Services",
			m.ID, more, key, exchange.MaxSliceNames)})
	}
	if problem := m.from.State().Problem; problem.Reason == model.ReasonLimitExceeded { // not everything was read
		problems = append(problems, model.Problem{Reason: model.ReasonLimitExceeded, Cluster: m.ID, Message: problem.Message})
	}
	return out, problems
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
	for i := range view {
		out[i] = view[i].namespace(name)
	}
	return out
}

func (m *snapshot) namespace(name string) model.MemberNamespace {
	if m.from == nil {
		return model.MemberNamespace{Cluster: m.ID, Presence: model.NamespaceUnknown}
	}
	return m.from.Namespace(name)
}

// Keys lists what every synced peer publishes a record of, each once, in no order.
func (s *Set) Keys() []types.NamespacedName {
	keys := sets.New[types.NamespacedName]()
	for _, r := range s.view.Load().members {
		if r.from != nil {
			keys.Insert(r.from.Keys()...)
		}
	}
	return keys.UnsortedList()
}
