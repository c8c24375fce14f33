// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/loop/internal/memory"
	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// resolve merges the exports that reach this cluster. Contacts say how each
// peer is.
func (i *importer) resolve(ctx context.Context, local *localExport) (plan.ImportInput, memory.Imported, map[model.ClusterID]model.Liveness) {
	in := plan.ImportInput{
		Key: local.key, Self: i.Self, Sources: map[model.ClusterID][]*discoveryv1.EndpointSlice{},
		LocalCluster: i.localCluster(), MaintainSelectors: i.MaintainSelectors, Takeover: i.Takeover,
	}
	found := memory.Imported{Exported: local.export != nil}
	// Peers change between two calls: one that was read neither before nor after
	// its exports were asked for may have seemed to export nothing.
	unread, contacts := map[model.ClusterID]bool{}, map[model.ClusterID]model.Liveness{i.Self: {State: model.Connected}}
	look := func() {
		for _, m := range i.Peers.Members() {
			contacts[m.ID] = m.Liveness
			unread[m.ID] = unread[m.ID] || !m.Synced
		}
	}
	look()
	exports := i.Peers.Exports(local.key)
	for _, e := range exports {
		sources, problems := i.Peers.Slices(e.Cluster, local.key)
		in.Sources[e.Cluster] = sources
		found.Problems = append(found.Problems, problems...)
	}
	found.Held = i.Peers.Held(local.key)
	look()
	for _, id := range slices.Sorted(maps.Keys(unread)) {
		if unread[id] {
			found.Unsynced = append(found.Unsynced, id)
		}
	}
	switch own, admitted := i.own(ctx, local); {
	case admitted == decision.Allowed:
		if _, err := exchange.Prefer(local.export); err != nil {
			found.Problems = append(found.Problems, model.Problem{Reason: model.ReasonInvalidAnnotation, Message: err.Error()})
		}
		exports = append(exports, own)
		in.Sources[i.Self] = withoutHostNames(local.sources)
	case admitted == decision.NotEvaluated && local.export != nil:
		// Not known is not withdrawn: what is here of our own stays.
		found.Unsynced = append(found.Unsynced, i.Self)
	}
	// What came of a held export is kept as if the cluster had not been read.
	in.Unsynced = slices.Clone(found.Unsynced)
	for _, hold := range found.Held {
		if !slices.Contains(in.Unsynced, hold.Cluster) {
			in.Unsynced = append(in.Unsynced, hold.Cluster)
		}
	}
	in.Desired, found.Conflicts = merge.Resolve(exports)
	found.Resolved = in.Desired
	found.Sources = sourcesOf(in, contacts)
	return in, found, contacts
}

func (b *base) localCluster() model.LocalCluster {
	if b.LocalCluster == nil {
		return model.LocalCluster{}
	}
	return b.LocalCluster()
}

// own is this cluster's export, and whether it counts: NotEvaluated if policy
// cannot tell, Denied also if there is nothing to export.
func (i *importer) own(ctx context.Context, local *localExport) (model.Export, decision.Outcome) {
	if local.export == nil {
		return model.Export{}, decision.Denied
	}
	export, err := i.localExport(local)
	if err != nil {
		return model.Export{}, decision.Denied
	}
	return export, i.Admitter.Admit(ctx, local.export).Outcome
}

// localExport is what this cluster's own ServiceExport and Service amount to.
func (b *base) localExport(local *localExport) (model.Export, error) {
	export, err := exchange.LocalExport(b.Self, local.export, local.service)
	if err == nil && b.MaintainSelectors {
		exchange.AddSelector(&export, local.service)
	}
	return export, err
}

func withoutHostNames(in []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, s := range in {
		if s.AddressType != discoveryv1.AddressTypeFQDN {
			out = append(out, s)
		}
	}
	return out
}

// sourcesOf are the clusters that contribute to what stands here: those whose
// exports were resolved, and those of which something is kept unread.
func sourcesOf(in plan.ImportInput, contacts map[model.ClusterID]model.Liveness) []model.Source {
	contributes := map[model.ClusterID]bool{}
	if in.Desired != nil {
		for _, c := range in.Desired.Constituents {
			contributes[c.Cluster] = true
		}
	}
	keep := func(id model.ClusterID) { contributes[id] = contributes[id] || slices.Contains(in.Unsynced, id) }
	if own := in.Current.Import; own != nil && model.IsManaged(own) {
		for _, c := range own.Status.Clusters {
			keep(model.ClusterID(c.Cluster))
		}
	}
	for _, s := range in.Current.Slices {
		if model.IsManaged(s) {
			keep(model.ClusterID(s.Labels[model.LabelSourceCluster]))
		}
	}
	maps.DeleteFunc(contributes, func(_ model.ClusterID, does bool) bool { return !does })
	var out []model.Source
	for _, id := range slices.Sorted(maps.Keys(contributes)) {
		out = append(out, model.Source{Cluster: id, Liveness: contacts[id]})
	}
	return out
}

// lose has the endpoints of lost clusters probed, and says which do not answer.
func (i *importer) lose(in *plan.ImportInput, sources []model.Source) {
	if i.Prober == nil {
		return
	}
	var targets map[model.ClusterID][]netip.AddrPort
	for _, s := range sources {
		if s.Liveness.State != model.Lost {
			continue
		}
		if targets == nil {
			targets = map[model.ClusterID][]netip.AddrPort{}
		}
		targets[s.Cluster] = targetsOf(s.Cluster, in)
	}
	i.Prober.Watch(in.Key, targets)
	if targets == nil {
		return
	}
	for _, id := range i.Prober.Down(in.Key) {
		if _, lost := targets[id]; lost {
			in.Lost = append(in.Lost, id)
		}
	}
}

// targetsOf are the TCP addresses of what cluster contributes. What it
// published says which of them were ready before any was withdrawn here; what
// is applied here says it after a restart too, when a lost cluster was not read.
func targetsOf(cluster model.ClusterID, in *plan.ImportInput) []netip.AddrPort {
	published := in.Sources[cluster]
	if len(published) == 0 {
		for _, s := range in.Current.Slices {
			if model.IsManaged(s) && s.Labels[model.LabelSourceCluster] == string(cluster) {
				published = append(published, s)
			}
		}
	}
	var ready, others []netip.AddrPort
	for _, s := range published {
		port := tcpPort(s)
		if port == 0 {
			continue
		}
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				address, err := netip.ParseAddr(text)
				if err != nil {
					continue
				}
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					ready = append(ready, netip.AddrPortFrom(address, port))
				} else {
					others = append(others, netip.AddrPortFrom(address, port))
				}
			}
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return others
}

// tcpPort is a port on which endpoints of the slice accept connections; 0 if
// none is known.
func tcpPort(s *discoveryv1.EndpointSlice) uint16 {
	for _, p := range s.Ports {
		isTCP := p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP
		if isTCP && p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
			return uint16(*p.Port)
		}
	}
	return 0
}

// onLost is what is to become of the endpoints of lost clusters, by the
// ServiceImport's annotation, else its Namespace's.
func onLost(key types.NamespacedName, current plan.Current, namespace *corev1.Namespace) (model.OnLost, []model.Problem) {
	where, text := "Namespace "+namespace.Name, namespace.Annotations[model.AnnotationOnLost]
	if current.Import != nil {
		if value, set := current.Import.Annotations[model.AnnotationOnLost]; set {
			where, text = "ServiceImport "+key.String(), value
		}
	}
	value, err := model.ParseOnLost(text)
	if err != nil {
		return value, []model.Problem{{Reason: model.ReasonInvalidAnnotation, Message: fmt.Sprintf(
			"%s, annotation %s: %v; %s holds until that is corrected", where, model.AnnotationOnLost, err, value)}}
	}
	return value, nil
}
