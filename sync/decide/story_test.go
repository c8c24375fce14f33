// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// story is one import in cluster a: what the other clusters publish, what exists, and the
// time. Each step decides, plans and writes until nothing is outstanding.
type story struct {
	t       *testing.T
	v       ImportView
	applied map[string]plan.Object // what was applied last, by kind and name
	created int
	last    ImportDecision
}

// at is a minute of the day on which every story begins at nine.
func at(minute int) time.Time { return time.Date(2026, 11, 22, 9, minute, 0, 0, time.UTC) }

// long is a creation time years before.
var long = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// connected is the liveness of a member whose heartbeat was seen.
var connected = model.Liveness{State: model.Connected, Seen: true}

// newStory begins at nine, long after the agent started, with these members, which were
// read and publish nothing.
func newStory(t *testing.T, members ...model.ClusterID) *story {
	s := &story{t: t, applied: map[string]plan.Object{}, v: ImportView{
		Self: "a", ComityNamespace: "comity-system", Now: at(0), FormsAt: at(-60), Own: OwnSource{State: model.SourceEnded},
		LocalCluster: model.LocalCluster{Families: []corev1.IPFamily{corev1.IPv4Protocol}},
		Local:        LocalExport{Key: web, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: web.Namespace}}},
	}}
	for _, id := range members {
		s.v.Peers = append(s.v.Peers, exchange.Published{Known: true, Member: model.Member{ID: id, Synced: true, Liveness: connected}})
	}
	return s
}

// peer is what is known of another cluster.
func (v *ImportView) peer(id model.ClusterID) *exchange.Published {
	at := slices.IndexFunc(v.Peers, func(p exchange.Published) bool { return p.ID == id })
	return &v.Peers[at]
}

func (s *story) peer(id model.ClusterID) *exchange.Published { return s.v.peer(id) }

// publishedBy is an export of cluster with UID "of-<cluster>" and one port.
func publishedBy(cluster model.ClusterID, created time.Time, change ...func(*model.Export)) model.Export {
	e := model.Export{
		SourceExport:      model.SourceExport{Cluster: cluster, UID: types.UID("of-" + cluster), CreatedAt: created},
		Key:               web,
		ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}},
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func headless(e *model.Export) { e.Type = mcsv1beta1.Headless }

func uid(text types.UID) func(*model.Export) { return func(e *model.Export) { e.UID = text } }

func port(name string, number int32) func(*model.Export) {
	return func(e *model.Export) {
		e.Ports = []mcsv1beta1.ServicePort{{Name: name, Protocol: corev1.ProtocolTCP, Port: number}}
	}
}

// publishes makes a cluster, this one too, publish an export, and read it.
func (s *story) publishes(id model.ClusterID, created time.Time, change ...func(*model.Export)) {
	e := publishedBy(id, created, change...)
	if id == s.v.Self {
		s.exportsHere(e)
		return
	}
	p := s.peer(id)
	p.Synced, p.Known, p.Liveness, p.Export = true, true, connected, &e
	p.Withdrawals = slices.DeleteFunc(p.Withdrawals, func(w model.Withdrawal) bool { return w.UID == e.UID })
	slice := sliceOf(e)
	slice.Annotations = map[string]string{model.AnnotationSourceSlice: slice.Name}
	p.Slices = []*discoveryv1.EndpointSlice{slice}
}

func sliceOf(e model.Export) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "web-" + string(e.Cluster)}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.%d.0.1", e.Cluster[0])}}},
	}
	for _, p := range e.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol), Port: ptr.To(p.Port + 8000)})
	}
	return slice
}

func (s *story) exportsHere(e model.Export) {
	s.v.Own = OwnSource{State: model.SourcePublished}
	local := &s.v.Local
	local.Export = &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name, UID: e.UID, CreationTimestamp: metav1.NewTime(e.CreatedAt)}}
	local.Service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	if e.Type == mcsv1beta1.Headless {
		local.Service.Spec.ClusterIP = corev1.ClusterIPNone
	}
	for _, p := range e.Ports {
		local.Service.Spec.Ports = append(local.Service.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	local.Slices, local.Verdict = []*discoveryv1.EndpointSlice{sliceOf(e)}, decision.Verdict{Outcome: decision.Allowed}
}

// withdraws makes a member state that its export is gone, or suspended.
func (s *story) withdraws(id model.ClusterID, suspended bool) {
	p := s.peer(id)
	p.Withdrawals = append(p.Withdrawals, model.Withdrawal{UID: p.Export.UID, CreatedAt: p.Export.CreatedAt, Suspended: suspended})
	p.Export, p.Slices = nil, nil
}

func (s *story) deletes(id model.ClusterID) { s.withdraws(id, false) }

// loses makes the records of a member disappear.
func (s *story) loses(id model.ClusterID) {
	p := s.peer(id)
	p.Export, p.Slices, p.Withdrawals = nil, nil, nil
}

// unread makes a member one that cannot be read and is lost; gone, one without a Peer.
func (s *story) unread(id model.ClusterID) {
	s.loses(id)
	p := s.peer(id)
	p.Synced, p.Liveness = false, model.Liveness{State: model.Lost, Since: s.v.Now, Seen: true, Message: "connection refused"}
}

// view is what is known, with the list that is stored now.
func (s *story) view() ImportView {
	v := s.v
	v.Peers = slices.Clone(v.Peers)
	ReadList(&v)
	return v
}

func (s *story) gone(id model.ClusterID) {
	s.v.Peers = slices.DeleteFunc(s.v.Peers, func(p exchange.Published) bool { return p.ID == id })
	ReadList(&s.v)
}

// probed is what the probes find of clusters.
func (s *story) probed(answers bool, clusters ...model.ClusterID) {
	if s.v.Answers == nil {
		s.v.Answers = map[model.ClusterID]bool{}
	}
	for _, id := range clusters {
		s.v.Answers[id] = answers
	}
}

func (s *story) removed(id model.ClusterID) {
	*s.peer(id) = exchange.Published{Member: model.Member{ID: id}, Removed: true}
}

// restarts makes the agent start again: nothing was read yet.
func (s *story) restarts() {
	s.v.FormsAt, s.v.Answers = s.v.Now.Add(10*time.Second), nil
	for i := range s.v.Peers {
		p := &s.v.Peers[i]
		*p = exchange.Published{Known: p.Known, Removed: p.Removed, Member: model.Member{ID: p.ID, Liveness: model.Liveness{State: model.Connected}, ConfirmMissingBefore: p.ConfirmMissingBefore}}
	}
}

// confirms annotates the ServiceImport, as kubectl comity confirm takeover does.
func (s *story) confirms(id string) {
	s.v.Current.Import = s.v.Current.Import.DeepCopy()
	s.v.Current.Import.Annotations[model.AnnotationConfirmTakeover] = id
}

func (s *story) after(d time.Duration) { s.v.Now = s.v.Now.Add(d) }

// step brings the import up to date, and checks that it then is: that a second decision
// writes nothing, and that another order of the members changes nothing.
func (s *story) step() {
	s.t.Helper()
	for range 4 {
		s.last = Import(s.view())
		if !s.last.Write {
			return
		}
		planned := plan.Import(s.last.Plan)
		for _, a := range planned.Actions {
			s.apply(a)
		}
		if !planned.AwaitsService {
			break
		}
	}
	again := Import(s.view())
	if planned := plan.Import(again.Plan); len(planned.Actions) > 0 {
		s.t.Fatalf("not quiet: %v", planned.Actions)
	}
	shuffled := s.view()
	slices.Reverse(shuffled.Peers)
	if diff := cmp.Diff(again.Plan.List, Import(shuffled).Plan.List); diff != "" {
		s.t.Fatalf("the order of the members counts:\n%s", diff)
	}
	s.last = again
}

// apply is a small API server.
func (s *story) apply(a plan.Action) {
	s.t.Helper()
	ref := a.Object.GetObjectKind().GroupVersionKind().Kind + a.Object.GetName()
	current := s.find(a.Object)
	switch {
	case (a.Verb == plan.Create) != (current == nil):
		s.t.Fatalf("%s: exists is %v", a, current != nil)
	case current != nil && (current.GetUID() != a.UID || a.ResourceVersion != "" && current.GetResourceVersion() != a.ResourceVersion):
		s.t.Fatalf("%s: a precondition failed", a)
	case a.Verb == plan.Delete:
		s.v.Current = s.v.Current.After([]plan.Action{a}, nil)
		return
	}
	s.created++
	var stored plan.Object
	if a.Verb == plan.Annotate {
		stored, _ = current.DeepCopyObject().(plan.Object)
		patch := a.Strip["metadata"].(map[string]any)["annotations"].(map[string]any)
		for key, value := range patch {
			stored.GetAnnotations()[key] = value.(string)
		}
	} else {
		stored, _ = a.Object.DeepCopyObject().(plan.Object)
		keepOthers(stored, current, s.applied[ref])
		s.applied[ref] = a.Object
	}
	stored.SetUID(types.UID(fmt.Sprint("uid-", s.created)))
	if current != nil {
		stored.SetUID(current.GetUID())
	}
	stored.SetResourceVersion(fmt.Sprint(s.created))
	stored.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply}})
	if service, is := stored.(*corev1.Service); is {
		s.assignAddress(service, current)
	}
	s.v.Current = s.v.Current.After(nil, []plan.Object{stored})
}

// keepOthers keeps the annotations that others set.
func keepOthers(stored, current, applied plan.Object) {
	if current == nil {
		return
	}
	others := maps.Clone(current.GetAnnotations())
	if applied != nil {
		for key := range applied.GetAnnotations() {
			delete(others, key)
		}
	}
	annotations := maps.Clone(stored.GetAnnotations())
	maps.Copy(others, annotations)
	stored.SetAnnotations(others)
}

func (s *story) assignAddress(service *corev1.Service, current plan.Object) {
	if before, is := current.(*corev1.Service); is && before != nil {
		service.Spec.ClusterIP, service.Spec.ClusterIPs, service.Spec.IPFamilies = before.Spec.ClusterIP, before.Spec.ClusterIPs, before.Spec.IPFamilies
		return
	}
	if service.Spec.ClusterIP == "" {
		service.Spec.ClusterIP = fmt.Sprintf("172.16.0.%d", s.created)
	}
	service.Spec.ClusterIPs = []string{service.Spec.ClusterIP}
	if len(service.Spec.IPFamilies) == 0 {
		service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
}

// find is the existing object of the kind and name of o; nil if there is none.
func (s *story) find(o plan.Object) plan.Object {
	switch o.GetObjectKind().GroupVersionKind().Kind {
	case "Service":
		for _, have := range s.v.Current.Services {
			if have.Name == o.GetName() {
				return have
			}
		}
	case "EndpointSlice":
		for _, have := range s.v.Current.Slices {
			if have.Name == o.GetName() {
				return have
			}
		}
	default:
		if s.v.Current.Import != nil {
			return s.v.Current.Import
		}
	}
	return nil
}

// ip is the clusterset IP; empty if there is none.
func (s *story) ip() string {
	if len(s.v.Current.Services) == 0 || s.v.Current.Services[0].Spec.ClusterIP == corev1.ClusterIPNone {
		return ""
	}
	return s.v.Current.Services[0].Spec.ClusterIP
}

// list is the stored list: "b c(Suspended)".
func (s *story) list() string {
	var out []string
	for _, e := range plan.StoredList(s.v.Current, web).Entries {
		text := string(e.Cluster)
		if e.Absent != "" {
			text += fmt.Sprintf("(%s)", e.Absent)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// state is the import in a line: "b c; ClusterSetIP http/80; from b c; frozen by b: Ended".
func (s *story) state() string {
	parts := []string{s.list()}
	if i := s.v.Current.Import; i != nil {
		text := string(i.Spec.Type)
		for _, p := range i.Spec.Ports {
			text += fmt.Sprintf(" %s/%d", p.Name, p.Port)
		}
		parts = append(parts, text)
		if !slices.Equal(i.Spec.IPs, slices.DeleteFunc([]string{s.ip()}, func(ip string) bool { return ip == "" })) {
			parts = append(parts, fmt.Sprintf("its IPs are %v, that of the Service is %q", i.Spec.IPs, s.ip()))
		}
	} else {
		parts = append(parts, "no import")
	}
	var from []string
	for _, slice := range s.v.Current.Slices {
		from = append(from, slice.Labels[model.LabelSourceCluster])
	}
	if slices.Sort(from); len(from) > 0 {
		parts = append(parts, "from "+strings.Join(from, " "))
	}
	if f := s.last.Finding.Freeze; f != nil {
		text := fmt.Sprintf("frozen by %s: %s", f.By.Cluster, f.By.State)
		if f.Waits {
			text += ", which others wait for"
		}
		parts = append(parts, text)
	}
	for _, t := range s.last.Finding.Takeovers {
		parts = append(parts, fmt.Sprintf("held %s over %s: %s", t.By.Cluster, t.Decider.Cluster, strings.Join(t.Fields, " ")))
	}
	return strings.Join(parts, "; ")
}

// is takes a step and compares the import.
func (s *story) is(want string) {
	s.t.Helper()
	s.step()
	if got := s.state(); got != want {
		s.t.Fatalf("at %s:\n got %s\nwant %s", s.v.Now.Format(time.TimeOnly), got, want)
	}
}
