// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

// members are the peers of a takeoverWorld.
type members struct {
	Peers
	all     []model.Member
	exports []model.Export
	// withdrawn is what they state.
	withdrawn []model.Withdrawal
}

func (m *members) Members() []model.Member { return m.all }

func (m *members) Exports(types.NamespacedName) []model.Export {
	return slices.DeleteFunc(slices.Clone(m.exports), func(e model.Export) bool { return !m.member(e.Cluster).Synced })
}

func (m *members) member(id model.ClusterID) *model.Member {
	return &m.all[slices.IndexFunc(m.all, func(m model.Member) bool { return m.ID == id })]
}

func (m *members) Slices(from model.ClusterID, _ types.NamespacedName) ([]*discoveryv1.EndpointSlice, []model.Problem) {
	export := m.exports[slices.IndexFunc(m.exports, func(e model.Export) bool { return e.Cluster == from })]
	return []*discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{Name: "web-" + string(from)}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}},
		Ports:     []discoveryv1.EndpointPort{{Name: &export.Ports[0].Name, Port: ptr.To(int32(80)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}}, nil
}

func (m *members) Withdrawals(types.NamespacedName) []model.Withdrawal              { return m.withdrawn }
func (m *members) OwnIDClaim() (model.OwnIDClaim, bool)                             { return model.OwnIDClaim{}, false }
func (m *members) Refusals(types.NamespacedName) []model.Refusal                    { return nil }
func (m *members) NotAccepted(types.NamespacedName) []model.ClusterID               { return nil }
func (m *members) Namespace(string) []model.MemberNamespace                         { return nil }
func (m *members) Filter(model.ClusterID) (exchange.Filter, bool)                   { return exchange.Filter{}, false }
func (m *members) Hold(types.NamespacedName, []model.ClusterID) (held []model.Hold) { return nil }

// takeoverWorld is cluster b, which imports shop/web, and its peers a, c and d.
type takeoverWorld struct {
	*members
	t        *testing.T
	i        *importController
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	client   client.Client
	refused  model.ClusterID // whose slices the API server refuses
	notMade  bool            // it refuses the ServiceImport
}

// hold is the --takeover-hold of a takeoverWorld.
const hold = time.Minute

func newTakeoverWorld(t *testing.T, exports ...model.Export) *takeoverWorld {
	t.Helper()
	w := &takeoverWorld{
		members: &members{exports: exports}, t: t, recorder: events.NewFakeRecorder(100),
		clock: clocktesting.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)),
	}
	for _, id := range []model.ClusterID{"a", "c", "d"} {
		w.all = append(w.all, model.Member{ID: id, Synced: true, StatesWithdrawals: true, Liveness: model.Liveness{State: model.Connected}})
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcsv1beta1.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	byLabel := func(label string) client.IndexerFunc {
		return func(o client.Object) []string { return []string{o.GetLabels()[label]} }
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().
		WithIndex(&discoveryv1.EndpointSlice{}, indexService, byLabel(discoveryv1.LabelServiceName)).
		WithIndex(&discoveryv1.EndpointSlice{}, indexImport, byLabel(model.LabelServiceName)).
		WithIndex(&corev1.Service{}, indexImport, byLabel(model.LabelServiceName)).
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: importKey.Namespace, UID: "n"}}).
		WithInterceptorFuncs(interceptor.Funcs{Patch: w.patch}).Build()
	w.start()
	return w
}

// start is what a process that starts remembers: nothing.
func (w *takeoverWorld) start() {
	limiter := func() workqueue.TypedRateLimiter[reconcile.Request] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](10*time.Minute, 10*time.Minute)
	}
	w.i = &importController{
		base: &base{
			Options: Options{Self: "b", Namespace: "comity-system", Peers: w.members, Recorder: w.recorder, Clock: w.clock, TakeoverHold: hold,
				LocalCluster: func() model.LocalCluster { return model.LocalCluster{Families: []corev1.IPFamily{corev1.IPv4Protocol}} }},
			client: w.client, applier: apply.New(w.client, nil), observations: NewObservations(), conflicts: limiter(), refusals: limiter(),
			definition: &exportDefinition{reader: w.client, clock: w.clock},
		},
		names: decide.NewNames(), drift: newDriftLimiter(w.clock.Now), sources: newSourceLimiter("b", w.clock.Now, nil), takeovers: newTakeovers(), refused: newRefusals(),
	}
	w.i.large = newLargeWrites("b", w.i.applier.Apply, w.i.drift.applied)
}

// patch is the API server: the precondition of a create is not that of the fake one.
func (w *takeoverWorld) patch(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	refuse := apierrors.NewInvalid(schema.GroupKind{Kind: "Object"}, o.GetName(), nil)
	data, err := p.Data(o)
	if err != nil || p.Type() != types.ApplyPatchType {
		return c.Patch(ctx, o, p, opts...)
	}
	var body map[string]any
	if err := json.Unmarshal(data, &body); err != nil {
		return err
	}
	metadata, _ := body["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	kind := body["kind"]
	if kind == "ServiceImport" && w.notMade || kind == "EndpointSlice" && w.refused != "" && labels[model.LabelSourceCluster] == string(w.refused) {
		return refuse
	}
	delete(metadata, "resourceVersion")
	if spec, has := body["spec"].(map[string]any); has && kind == "Service" {
		spec["clusterIP"], spec["clusterIPs"], spec["ipFamilies"] = "10.96.0.9", []string{"10.96.0.9"}, []string{"IPv4"}
	}
	if data, err = json.Marshal(body); err != nil {
		return err
	}
	if err := c.Patch(ctx, o, client.RawPatch(types.ApplyPatchType, data), opts...); err != nil || o.GetUID() != "" {
		return err
	}
	return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"uid":"of-`+o.GetName()+`"}}`)))
}

// pass lets time pass, reconciles, and returns when the import is reconciled again.
func (w *takeoverWorld) pass(d time.Duration) time.Duration {
	w.t.Helper()
	w.clock.Step(d)
	result, err := w.i.Reconcile(context.Background(), reconcile.Request{NamespacedName: importKey})
	if err != nil {
		w.t.Fatal(err)
	}
	return result.RequeueAfter
}

// settle makes the import and lets it settle.
func (w *takeoverWorld) settle() {
	w.t.Helper()
	for range 3 {
		w.pass(time.Second)
	}
	w.pass(time.Hour)
	w.events()
}

// order are the clusters of which the ServiceImport consists, the deciding one first.
func (w *takeoverWorld) order() string {
	w.t.Helper()
	imported := &mcsv1beta1.ServiceImport{}
	if err := w.client.Get(context.Background(), importKey, imported); err != nil {
		w.t.Fatal(err)
	}
	var order []string
	for _, s := range model.ParseSourceExports(imported.Annotations[model.AnnotationExports]) {
		order = append(order, string(s.Cluster))
	}
	return strings.Join(order, " ")
}

func (w *takeoverWorld) ordered(want string) {
	w.t.Helper()
	if got := w.order(); got != want {
		w.t.Fatalf("the import consists of %q, want %q", got, want)
	}
}

// events are those since the last call.
func (w *takeoverWorld) events() (out []string) {
	for {
		select {
		case e := <-w.recorder.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func published(cluster model.ClusterID, day int, port string) model.Export {
	return model.Export{
		Cluster: cluster, Key: importKey, UID: types.UID("of-" + cluster), CreatedAt: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC), Type: mcsv1beta1.ClusterSetIP,
		Ports: []mcsv1beta1.ServicePort{{Name: port, Protocol: corev1.ProtocolTCP, Port: 80}},
	}
}

func TestATimedHoldEndsInTheController(t *testing.T) {
	w := newTakeoverWorld(t, published("a", 9, "http"))
	w.settle()
	w.ordered("a")
	w.exports = append(w.exports, published("c", 1, "x"))
	if again := w.pass(time.Second); again != hold {
		t.Errorf("it is reconciled again in %v, want %v", again, hold)
	}
	w.ordered("a c")
	if again := w.pass(20 * time.Second); again != hold-20*time.Second {
		t.Errorf("it is reconciled again in %v", again)
	}
	w.pass(hold - 20*time.Second)
	w.ordered("c a")
}

// The next try of what is refused is ten minutes away.
func TestATimedHoldEndsBesideARefusedSlice(t *testing.T) {
	w := newTakeoverWorld(t, published("a", 9, "http"))
	w.settle()
	labeled := published("c", 1, "http") // of another port nothing is imported while it waits
	labeled.Labels = map[string]string{"from": "c"}
	w.exports, w.refused = append(w.exports, labeled), "c"
	if again := w.pass(time.Second); again != hold {
		t.Errorf("it is reconciled again in %v, want %v", again, hold)
	}
	if problems := w.i.observations.imported[importKey].Problems; len(problems) == 0 || problems[0].Reason != model.ReasonRefused {
		t.Fatalf("no slice is refused: %v", problems)
	}
	w.pass(hold)
	w.ordered("c a")
}

func TestAMemberThatWasUnreadIsRememberedBesideARefusedSlice(t *testing.T) {
	w := newTakeoverWorld(t, published("a", 9, "http"), published("c", 1, "x"))
	w.member("c").Synced, w.refused = false, "a"
	w.settle()
	w.ordered("a")
	w.member("c").Synced = true
	w.pass(time.Second)
	w.ordered("c a")
}

func TestAHoldDoesNotBeginAgainWhenTheDecidingClusterWasUnread(t *testing.T) {
	w := newTakeoverWorld(t, published("a", 9, "http"))
	w.settle()
	w.exports = append(w.exports, published("c", 1, "x"))
	w.pass(time.Second)
	w.member("a").Synced = false
	w.pass(40 * time.Second)
	w.member("a").Synced = true
	if again := w.pass(10 * time.Second); again != 10*time.Second {
		t.Errorf("it is reconciled again in %v", again)
	}
	w.pass(10 * time.Second)
	w.ordered("c a")
}

// A process that starts reads an import that is old, and remembers no hold.
func TestAHoldBeginsAgainWithTheProcess(t *testing.T) {
	w := newTakeoverWorld(t, published("a", 9, "http"))
	w.settle()
	w.exports = append(w.exports, published("c", 1, "x"))
	w.pass(time.Second)
	w.start()
	if again := w.pass(hold); again != hold {
		t.Errorf("it is reconciled again in %v", again)
	}
	w.ordered("a c")
}

// Otherwise a takeover that waits would be let in by whoever deletes the ServiceImport.
func TestWhoDeletesAServiceImportConfirmsNoTakeover(t *testing.T) {
	w := newTakeoverWorld(t, published("a", 9, "http"))
	w.settle()
	w.exports = append(w.exports, published("c", 1, "x"))
	w.pass(time.Second)
	w.ordered("a c")
	if err := w.client.Delete(t.Context(), &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: importKey.Namespace, Name: importKey.Name}}); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	w.ordered("a c")
	if held := w.i.observations.imported[importKey].Takeovers; len(held) != 1 || held[0].By.Cluster != "c" {
		t.Errorf("takeovers that wait: %v", held)
	}
	w.exports = append(w.exports, published("d", 2, "y"))
	w.pass(time.Second)
	w.ordered("a c d")
}

func TestAnImportIsYoungAgainOnceNothingWasExported(t *testing.T) {
	w := newTakeoverWorld(t, published("a", 9, "http"))
	w.settle()
	a := w.exports
	w.exports, w.withdrawn = nil, []model.Withdrawal{{Cluster: "a", UID: "of-a"}}
	w.pass(time.Second)
	w.exports, w.withdrawn = a, nil
	for deadline := time.Now().Add(20 * time.Second); w.i.observations.imported[importKey].Resolved == nil; { // the next creation waits
		if time.Now().After(deadline) {
			t.Fatal("the import is not made again")
		}
		time.Sleep(time.Millisecond)
		w.pass(time.Millisecond)
	}
	for range 3 {
		w.pass(time.Second)
	}
	w.ordered("a")
	w.exports = append(w.exports, published("c", 1, "x"))
	w.pass(time.Minute)
	w.ordered("c a")
}

// Once, whatever the API server refuses and whoever is unread, and again after the
// export was gone.
func TestAnExportThatJoinsIsAnnouncedOnce(t *testing.T) {
	w := newTakeoverWorld(t, published("a", 9, "http"))
	w.settle()
	announced := func(want ...string) {
		t.Helper()
		got := w.events()
		if !slices.EqualFunc(got, want, strings.Contains) {
			t.Fatalf("events %q, want %q", got, want)
		}
	}
	const joins = "ExportJoined cluster c exports this Service, too, and its endpoints are used from now on (UID of-c, created 2026-01-20T00:00:00Z)"
	w.exports = append(w.exports, published("c", 20, "http"))
	w.notMade = true
	w.pass(time.Second)
	announced(joins)
	w.pass(time.Second)
	w.member("a").Synced = false
	w.pass(time.Second)
	w.member("a").Synced = true
	w.pass(time.Second)
	announced()
	w.notMade = false
	w.pass(time.Second)
	w.pass(time.Second)
	w.ordered("a c")
	announced()
	w.exports = w.exports[:1]
	w.withdrawn = []model.Withdrawal{{Cluster: "c", UID: "of-c", CreatedAt: time.Date(2026, 1, 20, 0, 0, 0, 0, time.UTC)}}
	w.pass(time.Minute)
	w.ordered("a")
	w.exports = append(w.exports, published("c", 20, "http"))
	w.pass(time.Minute)
	announced(joins)
	w.exports = append(w.exports, published("d", 1, "http"))
	w.pass(time.Minute)
	announced("cluster d exports this Service, too, and its endpoints are used from now on (UID of-d, created 2026-01-01T00:00:00Z); it claims to be older")
}

// A cluster that joins may export every Service at once.
func TestTheEventsOnExportsThatJoinAreBounded(t *testing.T) {
	known, said := newTakeovers(), 0
	for n := range 10 * joinedAtOnce {
		said += len(known.unannounced(key(fmt.Sprint("web-", n)), nil, []decide.Joined{{SourceExport: model.SourceExport{Cluster: "c", UID: "of-c"}}}))
	}
	if said < joinedAtOnce || said > 2*joinedAtOnce {
		t.Errorf("%d events", said)
	}
}
