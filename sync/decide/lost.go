// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// wholeTargets are the endpoints of the sources that are lost, missing, or down as far as
// is known after a restart; nil if none is.
func wholeTargets(in plan.ImportInput, sources []model.Source) map[model.ClusterID][]netip.AddrPort {
	var out map[model.ClusterID][]netip.AddrPort
	for _, s := range sources {
		if !s.State.IsServed() || s.Liveness.State != model.Lost && s.State != model.SourceMissing && !isPresumedDown(s, in.Current) {
			continue
		}
		if out == nil {
			out = map[model.ClusterID][]netip.AddrPort{}
		}
		out[s.Cluster] = targetsOf(s.Cluster, in)
	}
	return out
}

// isPresumedDown reports whether the slices of a source say that it is down, and no
// heartbeat was seen since this process started. Of a source that lost some of its slices,
// only these are marked.
func isPresumedDown(s model.Source, current plan.Current) bool {
	isDown := false
	for _, d := range current.Slices {
		if !model.IsManaged(d) || d.Labels[model.LabelSourceCluster] != string(s.Cluster) {
			continue
		}
		_, marked := d.Annotations[model.AnnotationWithdrawn]
		if !marked && len(d.Endpoints) > 0 {
			return false
		}
		isDown = isDown || marked
	}
	return isDown && !s.Liveness.Seen
}

// withLostSlices adds the endpoints of the lost slices of other clusters.
func withLostSlices(whole map[model.ClusterID][]netip.AddrPort, in plan.ImportInput) map[model.ClusterID][]netip.AddrPort {
	if len(in.LostSlices) == 0 {
		return whole
	}
	out := maps.Clone(whole)
	if out == nil {
		out = map[model.ClusterID][]netip.AddrPort{}
	}
	for id, names := range in.LostSlices {
		if _, has := out[id]; has {
			continue
		}
		out[id] = targetsIn(slices.DeleteFunc(derivedOf(id, in), func(s *discoveryv1.EndpointSlice) bool {
			return !slices.Contains(names, s.Annotations[model.AnnotationSourceSlice])
		}))
	}
	return out
}

// derivedOf are the slices that Comity made of those of cluster.
func derivedOf(cluster model.ClusterID, in plan.ImportInput) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, s := range in.Current.Slices {
		if model.IsManaged(s) && s.Labels[model.LabelSourceCluster] == string(cluster) {
			out = append(out, s)
		}
	}
	return out
}

// targetsOf are the TCP addresses of what cluster contributes. What it published
// says which endpoints were ready before any was withdrawn here. After a restart
// a lost cluster was not read, and what is applied here says it.
func targetsOf(cluster model.ClusterID, in plan.ImportInput) []netip.AddrPort {
	published := in.Sources[cluster]
	if len(published) == 0 {
		published = derivedOf(cluster, in)
	}
	return targetsIn(published)
}

// targetsIn are those of the ready endpoints, or of all if none is ready.
func targetsIn(published []*discoveryv1.EndpointSlice) []netip.AddrPort {
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

// onLost is what happens to the endpoints of lost clusters: the annotation of
// the ServiceImport says it, else that of its Namespace.
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
			"%s, annotation %s: %v; %s applies until that is corrected", where, model.AnnotationOnLost, err, value)}}
	}
	return value, nil
}
