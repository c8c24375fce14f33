// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package conflict_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook/conflict"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// peers are members that were all read unless unread says otherwise.
type peers struct {
	exports []model.Export
	unread  model.ClusterID
}

// Read implements conflict.Peers: the namespace is the same everywhere where something is
// exported.
func (p peers) Read(types.NamespacedName, bool) []exchange.Published {
	out := []exchange.Published{{Member: model.Member{ID: "b"}}, {Member: model.Member{ID: "c"}}}
	for n := range p.exports {
		id := p.exports[n].Cluster
		at := slices.IndexFunc(out, func(r exchange.Published) bool { return r.ID == id })
		if at < 0 {
			at, out = len(out), append(out, exchange.Published{Member: model.Member{ID: id}})
		}
		out[at].Export = &p.exports[n]
		out[at].Namespace = decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{"comity.dev/identity": "x"}}
	}
	for i := range out {
		out[i].Known, out[i].Synced = true, out[i].ID != p.unread
	}
	return out
}

// stored are Namespace shop, and Service shop/web with port http 80.
func stored(change ...func(*corev1.Service)) []client.Object {
	web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Name: "http", Port: 80}}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
	}}
	for _, c := range change {
		c(web)
	}
	return []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"comity.dev/identity": "x"}}}, web}
}

// theirs is what a member exports: the same as stored, created so long before noon.
func theirs(id model.ClusterID, before time.Duration, change ...func(*model.Export)) model.Export {
	e := model.Export{
		SourceExport:      model.SourceExport{Cluster: id, UID: types.UID("uid-" + id), CreatedAt: noon.Add(-before)},
		Key:               types.NamespacedName{Namespace: "shop", Name: "web"},
		ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func onPort(number int32) func(*model.Export) {
	return func(e *model.Export) {
		e.Ports = []mcsv1beta1.ServicePort{{Name: "http", Port: number, Protocol: corev1.ProtocolTCP}}
	}
}

func ours(change ...func(*mcsv1beta1.ServiceExport)) *mcsv1beta1.ServiceExport {
	e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for _, c := range change {
		c(e)
	}
	return e
}

func foretell(p peers, objects []client.Object, export *mcsv1beta1.ServiceExport) []string {
	return conflict.Forecaster{
		Peers: p, Client: cluster(objects), Clock: clocktesting.NewFakePassiveClock(noon),
		View: decide.ImportView{Self: "a", ComityNamespace: "comity-system", IdentityLabels: []string{"comity.dev/identity"}},
	}.Warnings(context.Background(), export)
}

func cluster(objects []client.Object) client.Client {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcsv1beta1.Install} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithObjects(objects...).Build()
}

// imported is the ServiceImport of shop/web, which was made a day ago of these exports,
// the deciding one first.
func imported(from ...model.Export) client.Object {
	list := model.List{Formed: noon.Add(-24 * time.Hour)}
	for _, e := range from {
		list.Entries = append(list.Entries, model.Entry{SourceExport: model.SourceExport{Cluster: e.Cluster, UID: e.UID, CreatedAt: e.CreatedAt}})
	}
	return &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", CreationTimestamp: metav1.NewTime(noon.Add(-24 * time.Hour)),
		Annotations: map[string]string{model.AnnotationList: list.String()},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply, APIVersion: mcsv1beta1.GroupVersion.String(),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
		}},
	}}
}

// Whatever is exported and imported, the forecast names the export that decides the import
// once this one is stored, and warns whenever this one disagrees with it.
func TestTheForecastIsWhatIsDecided(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	rapid.Check(t, func(t *rapid.T) {
		port, age := rapid.SampledFrom([]int32{80, 8080}), rapid.IntRange(1, 5)
		p := peers{}
		for _, id := range []model.ClusterID{"b", "c", "d"}[:rapid.IntRange(1, 3).Draw(t, "exports")] {
			p.exports = append(p.exports, theirs(id, time.Duration(age.Draw(t, "age"))*time.Hour, onPort(port.Draw(t, "port"))))
		}
		own := ours(func(e *mcsv1beta1.ServiceExport) {
			e.UID, e.CreationTimestamp = "uid-a", metav1.NewTime(noon.Add(-time.Duration(age.Draw(t, "own age"))*time.Hour))
		})
		ownPort := port.Draw(t, "own port")
		local := stored(func(s *corev1.Service) { s.Spec.Ports[0].Port = ownPort })
		view := decide.ImportView{
			Self: "a", IdentityLabels: []string{"comity.dev/identity"}, Now: noon, Own: decide.OwnSource{State: model.SourcePublished},
			Local: decide.LocalExport{
				Key: key, Export: own, Namespace: local[0].(*corev1.Namespace), Service: local[1].(*corev1.Service), Verdict: decision.Verdict{Outcome: decision.Allowed},
			},
		}
		view.Peers = slices.DeleteFunc(p.Read(key, false), func(r exchange.Published) bool { return r.Export == nil })
		all := append(slices.Clone(p.exports), model.Export{SourceExport: model.SourceExport{Cluster: "a", UID: own.UID, CreatedAt: own.CreationTimestamp.Time}})
		if standing := rapid.Permutation(all).Draw(t, "order")[:rapid.IntRange(0, len(all)).Draw(t, "standing")]; len(standing) > 0 {
			local = append(local, imported(standing...))
			view.Current.Import = imported(standing...).(*mcsv1beta1.ServiceImport)
		}
		decide.ReadList(&view)
		resolved := decide.Import(view).Finding.Import
		decider := resolved.Constituents[0].Cluster
		got := foretell(p, local, own)
		if len(got) == 0 && resolved.Ports[0].Port != ownPort {
			t.Fatalf("no warning, though cluster %s decides %v and this export has port %d", decider, resolved.Ports, ownPort)
		}
		for _, text := range got {
			if !strings.Contains(text, fmt.Sprintf("the import is as the export of cluster %s has it", decider)) {
				t.Fatalf("cluster %s decides: %s", decider, text)
			}
		}
	})
}

// While a takeover is held, the export that decided before does so still: the forecast is
// that of the import in this cluster, and not that of KEP-1645 alone.
func TestAHeldTakeoverIsForetold(t *testing.T) {
	b, c := theirs("b", time.Hour), theirs("c", 72*time.Hour, onPort(9090))
	old := ours(func(e *mcsv1beta1.ServiceExport) {
		e.UID, e.CreationTimestamp = "uid-a", metav1.NewTime(noon.Add(-96*time.Hour))
	})
	own := model.Export{SourceExport: model.SourceExport{Cluster: "a", UID: "uid-a", CreatedAt: old.CreationTimestamp.Time}}
	onPort8080 := func(s *corev1.Service) { s.Spec.Ports[0].Port = 8080 }
	for _, tc := range []struct {
		name    string
		peers   []model.Export
		local   []client.Object
		export  *mcsv1beta1.ServiceExport
		want    []string // parts of the warnings, one for each
		without string
	}{
		{"an older export that waits decides nothing for a new one that agrees with the deciding one", []model.Export{b, c}, append(stored(), imported(b)), ours(), nil, ""},
		{"nor for one that disagrees", []model.Export{b, c}, append(stored(onPort8080), imported(b)), ours(), []string{
			"80/TCP in b (used: b has the oldest export); 8080/TCP in a.", "the export of cluster b has it",
		}, "9090/TCP"},
		{"without an import the oldest decides", []model.Export{b, c}, stored(), ours(), []string{"9090/TCP in c (used: c has the oldest export); 80/TCP in a."}, "takeover"},
		{"this export is older than the deciding one, and waits", []model.Export{b}, append(stored(onPort8080), imported(b, own)), old, []string{
			"80/TCP in b (used: b decides unless a takeover is confirmed); 8080/TCP in a.",
		}, "export of cluster a"},
		{"this export decides, and an older one waits", []model.Export{c}, append(stored(), imported(own)), ours(func(e *mcsv1beta1.ServiceExport) {
			e.UID, e.CreationTimestamp = "uid-a", metav1.NewTime(noon.Add(-48*time.Hour))
		}), []string{"80/TCP in a (used: a decides unless a takeover is confirmed); 9090/TCP in c."}, "oldest"},
		{"the import of somebody else holds nothing", []model.Export{b, c}, append(stored(), func() client.Object {
			foreign := imported(b)
			foreign.SetManagedFields(nil)
			return foreign
		}()), ours(), []string{"9090/TCP in c (used: c has the oldest export)"}, "takeover"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := strings.Join(foretell(peers{exports: tc.peers}, tc.local, tc.export), "\n")
			if len(tc.want) == 0 && got != "" {
				t.Errorf("got %s", got)
			}
			for _, part := range tc.want {
				if !strings.Contains(got, part) {
					t.Errorf("got %s\nwhich lacks %s", got, part)
				}
			}
			if tc.without != "" && strings.Contains(got, tc.without) {
				t.Errorf("got %s\nwith %s", got, tc.without)
			}
		})
	}
}

func TestWhatIsForetold(t *testing.T) {
	day := 24 * time.Hour
	would := func(reason, message, decider string) []string {
		return []string{"ServiceExport shop/web would have " + reason + ": " + message + " Until they agree, the import is as the export of cluster " + decider +
			" has it. The export is stored all the same."}
	}
	for _, tc := range []struct {
		name   string
		peers  []model.Export
		local  []client.Object
		export *mcsv1beta1.ServiceExport
		want   []string
	}{
		{"nobody else exports it", nil, stored(), ours(), nil},
		{"an older export that agrees", []model.Export{theirs("b", 3*day)}, stored(), ours(), nil},
		{"another port number, in an older export", []model.Export{theirs("b", 3*day, onPort(8080))}, stored(), ours(),
			would("PortConflict", `port "http": 8080/TCP in b (used: b has the oldest export); 80/TCP in a.`, "b")},
		{"another type, in an older export", []model.Export{theirs("b", 3*day, func(e *model.Export) { e.Type = mcsv1beta1.Headless })}, stored(), ours(),
			would("TypeConflict", `type: Headless in b (used: b has the oldest export); ClusterSetIP in a.`, "b")},
		{"labels of an older export", []model.Export{theirs("b", 3*day, func(e *model.Export) { e.Labels = map[string]string{"team": "red"} })}, stored(),
			ours(func(e *mcsv1beta1.ServiceExport) { e.Spec.ExportedLabels = map[string]string{"team": "blue"} }),
			would("LabelsConflict", `exported labels: team="red" in b (used: b has the oldest export); team="blue" in a.`, "b")},
		{"this export is older, as an update shows", []model.Export{theirs("b", time.Hour, onPort(8080))}, stored(),
			ours(func(e *mcsv1beta1.ServiceExport) { e.CreationTimestamp = metav1.NewTime(noon.Add(-day)) }),
			would("PortConflict", `port "http": 80/TCP in a (used: a has the oldest export); 8080/TCP in b.`, "a")},
		{"created in the same second", []model.Export{theirs("b", 0, onPort(8080))}, stored(), ours(),
			would("PortConflict", `port "http": 80/TCP in a (used: a has the oldest export); 8080/TCP in b.`, "a")},
		{"others disagree, and the deciding one agrees with this", []model.Export{theirs("b", 3*day), theirs("c", day, onPort(8080))}, stored(), ours(), nil},
		{"only the shared ports conflict", []model.Export{theirs("b", 3*day)}, stored(func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "admin", Port: 90})
		}), ours(func(e *mcsv1beta1.ServiceExport) {
			e.Annotations = map[string]string{model.AnnotationExportPorts: "http"}
		}), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := foretell(peers{exports: tc.peers}, tc.local, tc.export)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Each property that KEP-1645 calls a conflict is foretold.
func TestEveryConflictOfTheKEPIsForetold(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	near := corev1.ServiceTrafficDistributionPreferSameZone
	clientIP := func(seconds int32) func(*model.Export) {
		return func(e *model.Export) {
			e.SessionAffinity = corev1.ServiceAffinityClientIP
			e.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}
	}
	for reason, tc := range map[string]struct {
		theirs func(*model.Export)
		ours   func(*corev1.Service)
	}{
		"PortConflict":                  {onPort(8080), nil},
		"TypeConflict":                  {nil, func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }},
		"SessionAffinityConflict":       {clientIP(10), nil},
		"SessionAffinityConfigConflict": {clientIP(10), func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }},
		"AnnotationsConflict":           {func(e *model.Export) { e.Annotations = map[string]string{"x": "y"} }, nil},
		"InternalTrafficPolicyConflict": {func(e *model.Export) { e.InternalTrafficPolicy = &local }, nil},
		"TrafficDistributionConflict":   {func(e *model.Export) { e.TrafficDistribution = &near }, nil},
		"IPFamilyConflict":              {func(e *model.Export) { e.IPFamilies = append(e.IPFamilies, corev1.IPv6Protocol) }, nil},
	} {
		t.Run(reason, func(t *testing.T) {
			var changes []func(*corev1.Service)
			if tc.ours != nil {
				changes = append(changes, tc.ours)
			}
			other := theirs("b", time.Hour)
			if tc.theirs != nil {
				tc.theirs(&other)
			}
			got := foretell(peers{exports: []model.Export{other}}, stored(changes...), ours())
			if len(got) != 1 || !strings.HasPrefix(got[0], "ServiceExport shop/web would have "+reason+": ") || !strings.Contains(got[0], "the export of cluster b has it") {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestNothingIsForetoldOfWhatIsNotKnown(t *testing.T) {
	older := []model.Export{theirs("b", time.Hour, onPort(8080))}
	elsewhere := theirs("b", time.Hour, onPort(8080), func(e *model.Export) { e.Identity = map[string]string{"comity.dev/identity": "y"} })
	if got := foretell(peers{exports: older}, stored(), ours()); len(got) != 1 {
		t.Fatalf("got %q, want the conflict that the others lack", got)
	}
	for name, got := range map[string][]string{
		"a cluster decides that is no member":           foretell(peers{exports: older}, append(stored(), imported(theirs("x", 2*time.Hour))), ours()),
		"an export decides that is missing":             foretell(peers{exports: older}, append(stored(), imported(theirs("c", 2*time.Hour))), ours()),
		"a member was not read":                         foretell(peers{exports: older, unread: "c"}, stored(), ours()),
		"there is no Service":                           foretell(peers{exports: older}, stored()[:1], ours()),
		"there is no Namespace":                         foretell(peers{exports: older}, stored()[1:], ours()),
		"the Service cannot be exported":                foretell(peers{exports: older}, stored(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), ours()),
		"the namespaces have different identities":      foretell(peers{exports: []model.Export{elsewhere}}, stored(), ours()),
		"its ports cannot be exported":                  foretell(peers{exports: older}, stored(), ours(func(e *mcsv1beta1.ServiceExport) { e.Annotations = map[string]string{model.AnnotationExportPorts: ","} })),
		"of what nobody else exports nothing is read":   conflict.Forecaster{Peers: peers{}, Client: unreadable(t), View: decide.ImportView{Self: "a"}}.Warnings(t.Context(), ours()),
		"while a member is unread, nothing is read too": conflict.Forecaster{Peers: peers{exports: older, unread: "b"}, Client: unreadable(t), View: decide.ImportView{Self: "a"}}.Warnings(t.Context(), ours()),
	} {
		if len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// unreadable fails the test when it is read.
func unreadable(t *testing.T) client.Reader {
	return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			t.Error("it is read")
			return nil
		},
	}).Build()
}

// A hundred hostile exports give short, printable warnings, the same in any order.
func TestWarningsAreBounded(t *testing.T) {
	var exports []model.Export
	for i := range 100 {
		exports = append(exports, theirs(model.ClusterID(fmt.Sprintf("m-%02d", i)), time.Duration(i+1)*time.Hour, onPort(int32(1000+i)), func(e *model.Export) {
			e.Labels = map[string]string{"x": strings.Repeat("y\n", 500)}
			for n := range 100 {
				e.Ports = append(e.Ports, mcsv1beta1.ServicePort{Name: fmt.Sprintf("p-%d", n), Port: int32(2000 + n + i), Protocol: corev1.ProtocolTCP})
			}
		}))
	}
	first := foretell(peers{exports: exports}, stored(), ours())
	slices.Reverse(exports)
	if diff := cmp.Diff(first, foretell(peers{exports: exports}, stored(), ours())); diff != "" {
		t.Errorf("the order of the exports changes it:\n%s", diff)
	}
	total := 0
	for _, text := range first {
		if len(text) > 900 || strings.Contains(text, "\n") {
			t.Errorf("%d bytes: %s", len(text), text)
		}
		total += len(text)
	}
	if len(first) != 2 || total > 4096 {
		t.Errorf("%d warnings of %d bytes", len(first), total)
	}
}
