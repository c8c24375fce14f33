// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// here is the cluster in which the exports are imported. The exports are first
// imported as they are; then what is the last resort, unread or gone is so, if anything.
type here struct {
	Self     model.ClusterID   `json:"self"`
	Families []corev1.IPFamily `json:"families,omitempty"`
	Zones    []string          `json:"zones,omitempty"`
	// Endpoints are the ready ones of each cluster: an address, and a zone.
	Endpoints map[model.ClusterID][]string `json:"endpoints,omitempty"`
	// NotReady are addresses of them that are not ready.
	NotReady []string `json:"notReady,omitempty"`

	// Preferred are clusters of the tier that serves, from the beginning.
	Preferred []model.ClusterID `json:"preferred,omitempty"`
	// LastResort and Withheld are clusters with such endpoints.
	LastResort []model.ClusterID `json:"lastResort,omitempty"`
	Withheld   []model.ClusterID `json:"withheld,omitempty"`
	Unsynced   []model.ClusterID `json:"unread,omitempty"`
	Gone       []model.ClusterID `json:"gone,omitempty"`

	MaintainSelectors bool `json:"maintainSelectors,omitempty"`
	// Pipeline: the Sveltos pipeline made the objects, and they are taken over.
	Pipeline bool `json:"pipeline,omitempty"`
}

func readHere(t *testing.T, archive *txtar.Archive) *here {
	t.Helper()
	for _, f := range archive.Files {
		if f.Name == hereFile {
			var h here
			if err := yaml.UnmarshalStrict(f.Data, &h); err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
			return &h
		}
	}
	return nil
}

// run gives what is written and what then stands here, as one file.
func (h *here) run(t *testing.T, exports []model.Export) string {
	t.Helper()
	in := plan.ImportInput{
		Key: types.NamespacedName{Namespace: "default", Name: "web"}, Self: h.Self, LocalCluster: model.LocalCluster{Families: h.Families, Zones: h.Zones},
		MaintainSelectors: h.MaintainSelectors, Takeover: h.Pipeline, Sources: map[model.ClusterID][]*discoveryv1.EndpointSlice{},
	}
	if h.Pipeline {
		in.Current = pipelined()
	}
	for _, e := range exports {
		in.Sources[e.Cluster] = h.sources(e)
	}
	in.Traffic = map[model.ClusterID]model.Traffic{}
	for _, id := range h.Preferred {
		in.Traffic[id] = model.Preferred
	}
	h.decide(&in, exports, nil)
	writes, last := bring(t, &in)
	if len(h.LastResort)+len(h.Withheld)+len(h.Unsynced)+len(h.Gone) > 0 {
		there := slices.DeleteFunc(slices.Clone(exports), func(e model.Export) bool { return slices.Contains(h.Gone, e.Cluster) })
		for _, id := range h.LastResort {
			in.Traffic[id] = model.LastResort
		}
		for _, id := range h.Withheld {
			in.Traffic[id] = model.Withheld
		}
		h.decide(&in, there, h.Unsynced)
		writes, last = bring(t, &in)
	}
	lines := slices.Concat([]string{"writes:"}, writes, []string{"objects:"}, show(in.Current))
	if len(last.Unready) > 0 {
		lines = append(lines, fmt.Sprint("unready: ", last.Unready))
	}
	for _, p := range last.Problems {
		lines = append(lines, p.Reason+": "+p.Message)
	}
	archive := txtar.Archive{Files: []txtar.File{{Name: hereResult, Data: []byte(strings.Join(lines, "\n") + "\n")}}}
	return string(txtar.Format(&archive))
}

// decide is what package decide gives plan: the list, by age, and the exports that were
// read; what exists, while the export that decides was not.
func (h *here) decide(in *plan.ImportInput, exports []model.Export, unread []model.ClusterID) {
	in.List, in.Unsynced = model.List{Formed: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)}, sets.New(unread...)
	ordered := merge.OldestFirst(exports)
	for _, e := range ordered {
		in.List.Entries = append(in.List.Entries, model.Entry{SourceExport: model.SourceExport{Cluster: e.Cluster, UID: e.UID, CreatedAt: e.CreatedAt}})
	}
	isUnread := func(e model.Export) bool { return slices.Contains(unread, e.Cluster) }
	in.Frozen = len(ordered) > 0 && isUnread(ordered[0])
	in.Desired, _ = merge.ResolveInOrder(slices.DeleteFunc(ordered, isUnread))
	if in.Frozen {
		in.Desired = plan.Standing(in.Current, in.Key, in.Desired)
	}
}

// sources is one slice of each family that the cluster has endpoints of.
func (h *here) sources(e model.Export) []*discoveryv1.EndpointSlice {
	byType := map[discoveryv1.AddressType]*discoveryv1.EndpointSlice{}
	for _, text := range h.Endpoints[e.Cluster] {
		address, zone, zoned := strings.Cut(text, " ")
		family := discoveryv1.AddressTypeIPv4
		if strings.Contains(address, ":") {
			family = discoveryv1.AddressTypeIPv6
		}
		s := byType[family]
		if s == nil {
			name := "web-" + strings.ToLower(string(family))
			s = &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{model.AnnotationSourceSlice: name}}, AddressType: family}
			for i, p := range e.Ports {
				number := int32(8000 + i)
				s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &number})
			}
			byType[family] = s
		}
		ready := !slices.Contains(h.NotReady, address)
		endpoint := discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
		if zoned {
			endpoint.Zone = &zone
		}
		s.Endpoints = append(s.Endpoints, endpoint)
	}
	return slices.Collect(maps.Values(byType))
}

// bring plans until nothing is outstanding, and stores what is planned as an
// API server would that knows nobody else.
func bring(t *testing.T, in *plan.ImportInput) (writes []string, last plan.ImportPlan) {
	t.Helper()
	for range 8 {
		p := plan.Import(*in)
		if len(p.Actions) == 0 {
			return writes, p
		}
		for _, a := range p.Actions {
			writes = append(writes, "  "+a.String())
			store(&in.Current, a)
		}
	}
	t.Fatalf("eight plans were not enough: %v", writes)
	return nil, plan.ImportPlan{}
}

func store(c *plan.Current, a plan.Action) {
	if a.Verb == plan.Annotate {
		annotate(c, a)
		return
	}
	object, _ := a.Object.DeepCopyObject().(plan.Object)
	object.SetUID("uid")
	object.SetResourceVersion("2")
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply}})
	if annotations := object.GetAnnotations(); annotations != nil {
		delete(annotations, model.AnnotationAdopting) // as the release does
	}
	kind, name := a.Object.GetObjectKind().GroupVersionKind().Kind, a.Object.GetName()
	switch kind {
	case "Service":
		i := slices.IndexFunc(c.Services, func(s *corev1.Service) bool { return s.Name == name })
		if s, is := object.(*corev1.Service); is {
			if i >= 0 {
				s.Spec.ClusterIP, s.Spec.ClusterIPs = c.Services[i].Spec.ClusterIP, c.Services[i].Spec.ClusterIPs
			}
			address(s)
			defer func() { c.Services = append(c.Services, s) }()
		}
		if i >= 0 {
			c.Services = slices.Delete(c.Services, i, i+1)
		}
	case "EndpointSlice":
		c.Slices = slices.DeleteFunc(c.Slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
		if s, is := object.(*discoveryv1.EndpointSlice); is {
			c.Slices = append(c.Slices, s)
		}
	default:
		c.Import, _ = object.(*mcsv1beta1.ServiceImport)
	}
}

// annotate stores the list on a derived Service or on the ServiceImport.
func annotate(c *plan.Current, a plan.Action) {
	metadata, _ := a.Strip["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	to := func(o metav1.Object) {
		for key, value := range annotations {
			o.GetAnnotations()[key] = fmt.Sprint(value)
		}
	}
	for _, s := range c.Services {
		if _, is := a.Object.(*corev1.Service); is && s.Name == a.Object.GetName() {
			to(s)
		}
	}
	if _, is := a.Object.(*mcsv1beta1.ServiceImport); is {
		to(c.Import)
	}
}

// address gives a Service the addresses of its families.
func address(s *corev1.Service) {
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		s.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
		return
	}
	for _, f := range s.Spec.IPFamilies[min(len(s.Spec.ClusterIPs), len(s.Spec.IPFamilies)):] {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, map[corev1.IPFamily]string{"IPv4": "10.0.0.1", "IPv6": "fd00::1"}[f])
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
}

// pipelined is what the Sveltos pipeline makes of web with one port, from b.
func pipelined() plan.Current {
	derived := model.DerivedName("web")
	at := func(name string, labels map[string]string) metav1.ObjectMeta {
		labels[model.LabelServiceName] = "web"
		return metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid", ResourceVersion: "1", Labels: labels}
	}
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: at("web", map[string]string{})}
	imp.Annotations = map[string]string{model.AnnotationDerivedName: derived}
	return plan.Current{
		Import: imp,
		Services: []*corev1.Service{{
			ObjectMeta: at(derived, map[string]string{model.LabelServiceImported: "true", "app.kubernetes.io/managed-by": "sveltos"}),
			Spec: corev1.ServiceSpec{
				ClusterIP: "10.0.9.9", ClusterIPs: []string{"10.0.9.9"}, IPFamilies: []corev1.IPFamily{"IPv4"},
				Selector: map[string]string{"app": "web"}, Type: corev1.ServiceTypeClusterIP,
			},
		}},
		Slices: []*discoveryv1.EndpointSlice{{
			ObjectMeta: at(derived+"-b", map[string]string{discoveryv1.LabelServiceName: derived, discoveryv1.LabelManagedBy: "sveltos"}), AddressType: "IPv4",
		}},
	}
}

// show gives one line for each object, with all that traffic goes by.
func show(c plan.Current) []string {
	var lines []string
	for _, s := range c.Services {
		line := fmt.Sprintf("  Service %s: %s %v %v", s.Name, s.Spec.Type, s.Spec.ClusterIPs, s.Spec.IPFamilies)
		for _, p := range s.Spec.Ports {
			line += fmt.Sprintf(", %q %d/%s to %s", p.Name, p.Port, p.Protocol, p.TargetPort.String())
		}
		lines = append(lines, line+list(", selects ", s.Spec.Selector)+traffic(s.Spec.SessionAffinity, s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution))
	}
	slices.SortFunc(c.Slices, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range c.Slices {
		line := fmt.Sprintf("  EndpointSlice %s: of %s, serves %s, managed by %s", s.Name,
			s.Labels[model.LabelSourceCluster], s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy])
		for _, p := range s.Ports {
			line += fmt.Sprintf(", %q %d/%s", *p.Name, *p.Port, *p.Protocol)
		}
		lines = append(lines, line)
		for _, e := range s.Endpoints {
			lines = append(lines, "    "+showEndpoint(e))
		}
	}
	if s := c.Import; s != nil {
		line := fmt.Sprintf("  ServiceImport %s: %s %v %v", s.Name, s.Spec.Type, s.Spec.IPs, s.Spec.IPFamilies)
		for _, p := range showPorts(s.Spec.Ports) {
			line += ", " + p
		}
		lines = append(lines, line+traffic(s.Spec.SessionAffinity, s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution))
	}
	return lines
}

func showEndpoint(e discoveryv1.Endpoint) string {
	line := e.Addresses[0]
	if e.Conditions.Ready != nil && !*e.Conditions.Ready {
		line += " not ready"
	}
	if e.Conditions.Serving != nil && !*e.Conditions.Serving {
		line += " not serving"
	}
	if e.Conditions.Terminating != nil && *e.Conditions.Terminating {
		line += " terminating"
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			line += " for " + z.Name
		}
	}
	return line
}

func traffic(affinity corev1.ServiceAffinity, policy *corev1.ServiceInternalTrafficPolicy, distribution *string) string {
	line := ""
	if affinity != "" && affinity != corev1.ServiceAffinityNone {
		line += ", affinity " + string(affinity)
	}
	if policy != nil && *policy != corev1.ServiceInternalTrafficPolicyCluster {
		line += ", internal traffic " + string(*policy)
	}
	if distribution != nil {
		line += ", distribution " + *distribution
	}
	return line
}

func list(title string, of map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		pairs = append(pairs, key+"="+of[key])
	}
	if len(pairs) == 0 {
		return ""
	}
	return title + strings.Join(pairs, ",")
}
