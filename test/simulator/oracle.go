// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// The oracle says what should stand in a cluster, from what users put into all
// clusters and from nothing else. It shares no line with merge, plan or exchange.

// constituent is one cluster's export and the slices behind it, by their names.
type constituent struct {
	cluster model.ClusterID
	uid     types.UID
	created int64
	service *corev1.Service
	labels  map[string]string
	slices  map[string]*discoveryv1.EndpointSlice
}

// wanted is an import as it should be, or as it is: in words, so that what
// differs can be read.
type wanted struct {
	Import, Service string
	Slices          map[string]string // cluster/source/address type → the rest
}

// constituents are the exports of key that reach cluster c, oldest first.
func (w *World) constituents(c *Cluster, key types.NamespacedName) []constituent {
	var all []constituent
	for _, id := range w.ids {
		from := w.clusters[id]
		export := find[mcsv1beta1.ServiceExport](from, "ServiceExport", key)
		service := find[corev1.Service](from, "Service", key)
		namespace := find[corev1.Namespace](from, "Namespace", types.NamespacedName{Name: key.Namespace})
		if export == nil || service == nil || namespace == nil || namespace.DeletionTimestamp != nil || from != c && !w.shares(from, c, export) {
			continue
		}
		if service = sharedOf(export, service); service == nil {
			continue
		}
		one := constituent{id, export.UID, age(export.CreationTimestamp.Unix()), service, export.Spec.ExportedLabels, map[string]*discoveryv1.EndpointSlice{}}
		for _, o := range from.Server.List("EndpointSlice", key.Namespace) {
			if s, is := o.(*discoveryv1.EndpointSlice); is && s.Labels[discoveryv1.LabelServiceName] == key.Name {
				one.slices[s.Name] = s
			}
		}
		all = append(all, one)
	}
	sortConstituents(all)
	return all
}

// age is when an export was made: one from before there were exports is as young
// as can be.
func age(created int64) int64 {
	if created < time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Unix() {
		return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return created
}

func sortConstituents(all []constituent) {
	slices.SortFunc(all, older)
}

// older compares two exports by age.
func older(a, b constituent) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.cluster, b.cluster))
}

// shares reports whether an export of one cluster is for another, and that one
// may read it. If policies forbid it to a member, every member needs a record of its own.
func (w *World) shares(from, c *Cluster, export *mcsv1beta1.ServiceExport) bool {
	if !c.Peers[from.ID] {
		return false
	}
	list, scoped := export.Annotations[model.AnnotationExportTo]
	excluded := slices.Contains(from.Excluded, string(c.ID))
	if scoped {
		return from.Peers[c.ID] && slices.Contains(strings.Split(list, ","), string(c.ID)) && !excluded
	}
	narrowed := slices.ContainsFunc(from.Excluded, func(id string) bool { return from.Peers[model.ClusterID(id)] })
	return !narrowed || from.Peers[c.ID] && !excluded
}

// sharedOf is a Service with the ports that an export names, nil if that is none.
func sharedOf(export *mcsv1beta1.ServiceExport, service *corev1.Service) *corev1.Service {
	list, named := export.Annotations[model.AnnotationExportPorts]
	if !named {
		return service
	}
	out := service.DeepCopy()
	out.Spec.Ports = nil
	for _, name := range strings.Split(list, ",") {
		if strings.TrimSpace(name) == "" {
			return nil
		}
		for _, p := range service.Spec.Ports {
			if p.Name == strings.TrimSpace(name) {
				out.Spec.Ports = append(out.Spec.Ports, p)
			}
		}
	}
	if len(out.Spec.Ports) == 0 {
		return nil
	}
	return out
}

// mergedPorts are the ports of all exports: by name, then by number, oldest first.
func mergedPorts(all []constituent) []corev1.ServicePort {
	var named, out []corev1.ServicePort
	for _, one := range all {
		for _, p := range one.service.Spec.Ports {
			if !slices.ContainsFunc(named, func(q corev1.ServicePort) bool { return q.Name == p.Name }) {
				named = append(named, p)
			}
		}
	}
	for _, p := range named {
		if !slices.ContainsFunc(out, func(q corev1.ServicePort) bool { return q.Port == p.Port && q.Protocol == p.Protocol }) {
			out = append(out, p)
		}
	}
	return out
}

// mergedFamilies are those of the oldest export that has any.
func mergedFamilies(all []constituent) []corev1.IPFamily {
	for _, one := range all {
		if families := one.service.Spec.IPFamilies; len(families) > 0 {
			return families
		}
	}
	return nil
}

// expected is what should stand of an import; nil if nothing should.
func expected(all []constituent) *wanted {
	if len(all) == 0 {
		return nil
	}
	oldest, ports := all[0], mergedPorts(all)
	headless := oldest.service.Spec.ClusterIP == corev1.ClusterIPNone
	want := &wanted{Slices: map[string]string{}}
	want.Import = fmt.Sprintf("headless=%t ports=%s team=%q", headless, wordPorts(ports, false), oldest.labels["team"])
	want.Service = fmt.Sprintf("headless=%t ports=%s", headless, wordPorts(ports, true))
	if !headless {
		traffic := wordTraffic(oldest.service.Spec)
		want.Import += traffic
		want.Service += traffic
	}
	for _, one := range all {
		for name, s := range one.slices {
			if headless && !slices.Contains(mergedFamilies(all), corev1.IPFamily(s.AddressType)) {
				continue
			}
			var kept []string
			for _, p := range s.Ports {
				for _, q := range ports {
					declared := slices.ContainsFunc(one.service.Spec.Ports, func(d corev1.ServicePort) bool { return d.Name == q.Name && d.Port == q.Port })
					if *p.Name == q.Name && declared {
						kept = append(kept, fmt.Sprintf("%s:%d", proxied(q, ports), *p.Port))
					}
				}
			}
			if len(s.Ports) > 0 && len(kept) == 0 {
				continue
			}
			want.Slices[fmt.Sprintf("%s/%s/%s", one.cluster, name, s.AddressType)] = fmt.Sprintf("%v %s", kept, wordEndpoints(s))
		}
	}
	return want
}

func wordTraffic(s corev1.ServiceSpec) string {
	policy := corev1.ServiceInternalTrafficPolicyCluster
	if s.InternalTrafficPolicy != nil {
		policy = *s.InternalTrafficPolicy
	}
	out := fmt.Sprintf(" affinity=%s policy=%s", s.SessionAffinity, policy)
	if s.SessionAffinity == corev1.ServiceAffinityClientIP && s.SessionAffinityConfig != nil {
		out += fmt.Sprintf(" timeout=%d", *s.SessionAffinityConfig.ClientIP.TimeoutSeconds)
	}
	return out
}

// proxied is the name under which a port stands beside others.
func proxied(p corev1.ServicePort, all []corev1.ServicePort) string {
	if p.Name != "" || len(all) < 2 {
		return p.Name
	}
	return fmt.Sprintf("unnamed-%d", p.Port)
}

func wordPorts(ports []corev1.ServicePort, byProxy bool) string {
	var words []string
	for _, p := range ports {
		name := p.Name
		if byProxy {
			name = proxied(p, ports)
		}
		words = append(words, fmt.Sprintf("%s:%d/%s", name, p.Port, p.Protocol))
	}
	slices.Sort(words)
	return strings.Join(words, ",")
}

func wordEndpoints(s *discoveryv1.EndpointSlice) string {
	var words []string
	for _, e := range s.Endpoints {
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		words = append(words, fmt.Sprintf("%s ready=%t", strings.Join(e.Addresses, "+"), ready))
	}
	return strings.Join(words, ",")
}

// standing is what stands of an import in a cluster, as far as it is ours; nil
// if nothing does.
func (w *World) standing(c *Cluster, key types.NamespacedName) *wanted {
	out := &wanted{Slices: map[string]string{}}
	derived := ""
	if s := find[mcsv1beta1.ServiceImport](c, "ServiceImport", key); s != nil && model.IsManaged(s) {
		out.Import = wordImport(s)
		derived = s.Annotations[model.AnnotationDerivedName]
	}
	for _, o := range c.Server.List("Service", key.Namespace) {
		s, is := o.(*corev1.Service)
		if !is || !model.IsManaged(s) || s.Labels[model.LabelServiceName] != key.Name {
			continue
		}
		if out.Service != "" {
			out.Service += " and "
		}
		out.Service += wordService(s)
		if s.Name != derived {
			out.Service += " that the ServiceImport calls " + derived
		}
	}
	for _, o := range c.Server.List("EndpointSlice", key.Namespace) {
		s, is := o.(*discoveryv1.EndpointSlice)
		if !is || !model.IsManaged(s) || s.Labels[model.LabelServiceName] != key.Name {
			continue
		}
		id := fmt.Sprintf("%s/%s/%s", s.Labels[model.LabelSourceCluster], s.Annotations[model.AnnotationSourceSlice], s.AddressType)
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s:%d", *p.Name, *p.Port))
		}
		text := fmt.Sprintf("%v %s", ports, wordEndpoints(s))
		if at := s.Labels[discoveryv1.LabelServiceName]; at != derived {
			text += " of Service " + at
		}
		if _, twice := out.Slices[id]; twice {
			text += " twice"
		}
		out.Slices[id] = text
	}
	if out.Import+out.Service == "" && len(out.Slices) == 0 {
		return nil
	}
	return out
}

func wordImport(s *mcsv1beta1.ServiceImport) string {
	var ports []corev1.ServicePort
	for _, p := range s.Spec.Ports {
		ports = append(ports, corev1.ServicePort{Name: p.Name, Port: p.Port, Protocol: p.Protocol})
	}
	headless := s.Spec.Type == mcsv1beta1.Headless
	text := fmt.Sprintf("headless=%t ports=%s team=%q", headless, wordPorts(ports, false), s.Labels["team"])
	if !headless {
		text += wordTraffic(corev1.ServiceSpec{
			SessionAffinity: s.Spec.SessionAffinity, SessionAffinityConfig: s.Spec.SessionAffinityConfig, InternalTrafficPolicy: s.Spec.InternalTrafficPolicy,
		})
	}
	return text
}

func wordService(s *corev1.Service) string {
	headless := s.Spec.ClusterIP == corev1.ClusterIPNone
	text := fmt.Sprintf("headless=%t ports=%s", headless, wordPorts(s.Spec.Ports, false))
	if !headless {
		text += wordTraffic(s.Spec)
	}
	return text
}

// inTheWay reports whether objects of others keep an import from standing; then
// how much of it stands depends on what was there first.
func (w *World) inTheWay(c *Cluster, key types.NamespacedName) bool {
	foreign := func(kind, name string) bool {
		o := c.Server.Get(apiserver.Ref{Kind: kind, Namespace: key.Namespace, Name: name})
		return o != nil && (!model.IsManaged(o) || kind == "Service" && o.GetLabels()[model.LabelServiceName] != key.Name)
	}
	if foreign("ServiceImport", key.Name) || foreign("Service", model.DerivedName(key.Name)) && foreign("Service", model.AlternateDerivedName(key.Name)) {
		return true
	}
	return slices.ContainsFunc(c.Server.List("EndpointSlice", key.Namespace), func(o apiserver.Object) bool {
		return !model.IsManaged(o) && strings.HasPrefix(o.GetName(), "derived-")
	})
}

func splitRecord(record string) (name, namespace string) {
	name, namespace, _ = strings.Cut(record, ".")
	return name, namespace
}
