// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// world is one cluster that imports one Service from itself and from others, and what is
// there to be read. It remembers nothing of what was decided but the objects.
type world struct {
	now, formsAt int
	clusters     map[string]*cluster
	server       *apiserver.Server
	client       *apiserver.Client
	applier      *apply.Applier
	// met counts what became of a source from one decision to the next.
	met  map[[2]string]int
	rows map[string]string
}

// cluster is one source. Export is there while statements and lost are not.
type cluster struct {
	id              string
	member, removed bool
	read            bool
	export          *Export
	statements      []Statement
	lost            bool // the record is gone, and states nothing
	refused, denied bool
	undecided       bool
	confirmed       int
	version, uids   int // of its endpoint, and how many exports there were
}

const self = "a"

var (
	key   = types.NamespacedName{Namespace: "shop", Name: "web"}
	epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
)

func at(seconds int) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(seconds) * time.Second)
}

func newWorld() *world {
	w := &world{now: 100_000, clusters: map[string]*cluster{}, met: map[[2]string]int{}, rows: map[string]string{}}
	w.formsAt = w.now + 10
	for _, id := range []string{self, "b", "c"} {
		w.clusters[id] = &cluster{id: id, member: true, read: true}
	}
	w.server = apiserver.New(self, func() time.Time { return at(w.now) })
	w.client = &apiserver.Client{Server: w.server, Actor: "agent"}
	w.applier = apply.New(w.client, nil)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}}
	namespace.APIVersion, namespace.Kind = "v1", "Namespace"
	if err := w.server.Put("user", namespace); err != nil {
		panic(err)
	}
	return w
}

// order are the clusters, as maps have none.
func (w *world) order() []*cluster {
	return []*cluster{w.clusters[self], w.clusters["b"], w.clusters["c"]}
}

// current is what exists of the import.
func (w *world) current() plan.Current {
	var c plan.Current
	c.Import, _ = w.server.Get(apiserver.Ref{Kind: "ServiceImport", Namespace: key.Namespace, Name: key.Name}).(*mcsv1beta1.ServiceImport)
	for _, o := range w.server.List("Service", key.Namespace) {
		if s, is := o.(*corev1.Service); is {
			c.Services = append(c.Services, s)
		}
	}
	for _, o := range w.server.List("EndpointSlice", key.Namespace) {
		if s, is := o.(*discoveryv1.EndpointSlice); is {
			c.Slices = append(c.Slices, s)
		}
	}
	return c
}

// slice is what a cluster publishes of its endpoints; nil if nothing.
func (c *cluster) slice() *discoveryv1.EndpointSlice {
	name, number, tcp, yes := "http", int32(c.export.Port), corev1.ProtocolTCP, true
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "web-0", Labels: map[string]string{
			discoveryv1.LabelServiceName: key.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}, Annotations: map[string]string{model.AnnotationSourceSlice: "web-0"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &number, Protocol: &tcp}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{c.address()}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}},
	}
}

func (c *cluster) address() string {
	return fmt.Sprintf("10.%d.%d.%d", c.id[0]-'a'+1, c.version/250, c.version%250+1)
}

// published is the export that can be read; nil if none.
func (c *cluster) published() *Export {
	if c.export == nil || len(c.statements) > 0 || c.lost {
		return nil
	}
	return c.export
}

// own is the state of this cluster's own export.
func (c *cluster) own() string {
	switch {
	case c.undecided:
		return "NotRead"
	case c.export == nil || len(c.statements) > 0 && !c.statements[0].Suspended:
		return "Ended"
	case len(c.statements) > 0, c.lost, c.denied:
		return "Suspended"
	}
	return "Published"
}

// ask is the view for the oracle.
func (w *world) ask() View {
	v := View{Now: w.now, FormsAt: w.formsAt, Sources: map[string]Source{}}
	current := w.current()
	v.List, v.Stands = stored(current)
	v.Service = len(current.Services) > 0
	if current.Import != nil {
		v.Takeover = current.Import.Annotations[model.AnnotationConfirmTakeover]
	}
	for _, s := range current.Slices {
		v.Found = append(v.Found, s.Labels[model.LabelSourceCluster])
	}
	slices.Sort(v.Found)
	v.Found = slices.Compact(v.Found)
	for _, c := range w.order() {
		s := Source{Removed: c.removed}
		if c.id == self {
			s = Source{Own: c.own(), Read: true, Export: c.published()}
			if s.Own != "Published" {
				s.Export = nil
			}
		} else if c.member && !c.removed {
			s.Read, s.Refused, s.Undecided, s.Confirmed = c.read, c.refused || c.denied, c.undecided && !c.denied, c.confirmed
			v.Members = append(v.Members, c.id)
			if s.Read {
				s.Export, s.Statements = c.published(), c.statements
			}
		}
		v.Sources[c.id] = s
	}
	return v
}

// stored is the list that objects have, and what the import is, read without the product.
func stored(c plan.Current) (List, *Properties) {
	var out List
	var stands *Properties
	read := func(o metav1.Object) {
		var text struct {
			Formed  time.Time
			Exports []struct {
				Cluster, UID, Absent string
				Scoped               bool
				CreatedAt, Since     *time.Time
			}
		}
		if out.Formed != 0 || json.Unmarshal([]byte(o.GetAnnotations()[model.AnnotationList]), &text) != nil {
			return
		}
		out.Formed = int(text.Formed.Sub(epoch) / time.Second)
		for _, s := range text.Exports {
			e := Entry{Cluster: s.Cluster, UID: s.UID, Scoped: s.Scoped, Out: s.Absent, Created: -1 << 40}
			if s.CreatedAt != nil {
				e.Created = int(s.CreatedAt.Sub(epoch) / time.Second)
			}
			if s.Since != nil {
				e.Since = int(s.Since.Sub(epoch) / time.Second)
			}
			out.Entries = append(out.Entries, e)
		}
	}
	for _, s := range c.Services {
		read(s)
		stands = &Properties{Headless: s.Spec.ClusterIP == corev1.ClusterIPNone, Port: int(s.Spec.Ports[0].Port)}
		stands.Affinity = !stands.Headless && s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
	}
	if i := c.Import; i != nil {
		read(i)
		if stands == nil {
			stands = ofImport(i)
		}
	}
	return out, stands
}

func ofImport(i *mcsv1beta1.ServiceImport) *Properties {
	return &Properties{Headless: i.Spec.Type == mcsv1beta1.Headless, Port: int(i.Spec.Ports[0].Port), Affinity: i.Spec.SessionAffinity == corev1.ServiceAffinityClientIP}
}

// step decides and writes until nothing is to be written, and compares each decision. It
// stops after that many writes, as a process that crashes does.
func (w *world) step(t fataler, writes int) {
	for range 10 {
		before := w.current()
		asked := w.ask()
		want, got := Import(asked), decide.Import(w.view())
		w.compare(t, want, got)
		w.count(asked, want)
		if want.Waits {
			return
		}
		planned := plan.Import(got.Plan)
		if len(planned.Actions) == 0 {
			w.compareObjects(t, want, before)
			return
		}
		actions := planned.Actions[:min(writes, len(planned.Actions))]
		if _, err := w.applier.Apply(context.Background(), actions); err != nil {
			t.Fatalf("apply: %v", err)
		}
		if writes -= len(actions); writes == 0 {
			return
		}
		w.keeps(t, want, before)
	}
	t.Fatalf("ten plans were not enough")
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// count notes what became of each source since the decision before. One without an entry
// was nothing; one that was found when the list formed is.
func (w *world) count(v View, a Answer) {
	if a.Waits {
		return
	}
	for _, c := range w.order() {
		from, row := w.rows[c.id], a.Rows[c.id]
		switch {
		case v.List.of(c.id) == nil && row != "Joined" && (row != "Removed" || slices.Contains(v.Found, c.id)):
			from = "found"
		case v.List.of(c.id) == nil:
			from = ""
		case from == "", from == "Removed", from == "MissingConfirmed", isOut(from) && !isOut(v.List.of(c.id).Out):
			from = row // that decision was not stored
		}
		if row != "" && from != row && (row != "Removed" || from != "") {
			w.met[[2]string{from, row}]++
		}
		w.rows[c.id] = row
	}
}

// compare asks that a decision is the answer.
func (w *world) compare(t fataler, want Answer, got decide.ImportDecision) {
	if want.Waits != !got.Write {
		t.Fatalf("the oracle waits for members: %t, the decision is written: %t", want.Waits, got.Write)
	}
	if want.Waits {
		return
	}
	have := Answer{Rows: map[string]string{}, List: List{Formed: int(got.Plan.List.Formed.Sub(epoch) / time.Second)}, Service: want.Service, Import: want.Import, Follow: want.Follow, Keep: want.Keep}
	for _, e := range got.Plan.List.Entries {
		entry := Entry{Cluster: string(e.Cluster), UID: string(e.UID), Scoped: e.Scoped, Created: int(e.CreatedAt.Sub(epoch) / time.Second)}
		if e.CreatedAt.IsZero() {
			entry.Created = -1 << 40
		}
		if e.Absent != "" {
			entry.Out, entry.Since = string(e.Absent), int(e.Since.Sub(epoch)/time.Second)
		}
		have.List.Entries = append(have.List.Entries, entry)
	}
	for _, s := range got.Finding.Sources {
		have.Rows[string(s.Cluster)] = string(s.State)
	}
	for id := range want.Rows { // what was dropped is not reported
		if want.List.of(id) == nil {
			have.Rows[id] = want.Rows[id]
		}
	}
	if f := got.Finding.Freeze; f != nil {
		have.FrozenBy = string(f.By.Cluster)
	}
	have.Decider = string(got.Finding.Decider.Cluster)
	for _, h := range got.Finding.Takeovers {
		have.Held = append(have.Held, string(h.By.Cluster))
	}
	slices.Sort(have.Held)
	if diff := cmp.Diff(want, have, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("the decision is not what the oracle says (-oracle +code):\n%s\n%s", diff, w)
	}
}

// compareObjects asks that the objects are what the answer says.
func (w *world) compareObjects(t fataler, want Answer, before plan.Current) {
	current := w.current()
	list, stands := stored(current)
	if (current.Import != nil) != (want.Import != nil) || len(current.Services) > 0 != want.Service {
		t.Fatalf("there is a ServiceImport: %t, the oracle says %t; %d derived Services, the oracle says %t\n%s",
			current.Import != nil, want.Import != nil, len(current.Services), want.Service, w)
	}
	if want.Service && !cmp.Equal(list, want.List, cmpopts.EquateEmpty()) {
		t.Fatalf("the stored list differs:\n%s\n%s", cmp.Diff(want.List, list), w)
	}
	if want.Import != nil && !stands.equal(*want.Import) {
		t.Fatalf("the import is %+v, the oracle says %+v\n%s", *stands, *want.Import, w)
	}
	if i := current.Import; i != nil && want.FrozenBy == "" && !ofImport(i).equal(*want.Import) { // else the derived Service may be ahead
		t.Fatalf("the ServiceImport is %+v, the oracle says %+v\n%s", *ofImport(i), *want.Import, w)
	}
	w.keeps(t, want, before)
	for _, c := range w.order() {
		s := sliceFrom(current, c.id)
		follows := want.Import != nil && slices.Contains(want.Follow, c.id) && c.export.Port == want.Import.Port
		switch {
		case slices.Contains(want.Keep, c.id):
		case !follows && s != nil:
			t.Fatalf("endpoints of %s stay\n%s", c.id, w)
		case follows && (s == nil || s.Endpoints[0].Addresses[0] != c.address()):
			t.Fatalf("endpoints of %s do not follow\n%s", c.id, w)
		}
	}
}

// keeps asks that no endpoint of a source that is kept changed.
func (w *world) keeps(t fataler, want Answer, before plan.Current) {
	current := w.current()
	for _, id := range want.Keep {
		if was, is := sliceFrom(before, id), sliceFrom(current, id); was != nil && (is == nil || !cmp.Equal(was.Endpoints, is.Endpoints)) {
			t.Fatalf("endpoints of %s changed, which are kept\n%s", id, w)
		}
	}
}

func sliceFrom(c plan.Current, id string) *discoveryv1.EndpointSlice {
	for _, s := range c.Slices {
		if s.Labels[model.LabelSourceCluster] == id {
			return s
		}
	}
	return nil
}

// String is what a failure needs.
func (w *world) String() string {
	text := fmt.Sprintf("now %d, view:\n", w.now)
	for _, c := range w.order() {
		text += fmt.Sprintf("  %+v export %+v statement %+v\n", *c, c.export, c.statements)
	}
	list, stands := stored(w.current())
	return text + fmt.Sprintf("stored %+v\nstands %+v", list, stands)
}
