// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// world is a cluster b whose peers and loop say what a test wants.
type world struct {
	Peers
	members []model.Member
	exports []model.Export
	refused []model.Refusal
	held    []model.Hold
	seen    *model.Observation
	missing map[string]bool // exchange namespaces
}

func (w *world) Members() []model.Member                       { return w.members }
func (w *world) Exports(types.NamespacedName) []model.Export   { return w.exports }
func (w *world) Refusals(types.NamespacedName) []model.Refusal { return w.refused }
func (w *world) Held(types.NamespacedName) []model.Hold        { return w.held }
func (w *world) Slices(model.ClusterID, types.NamespacedName) ([]*discoveryv1.EndpointSlice, []model.Problem) {
	return nil, nil
}
func (w *world) Observe(types.NamespacedName) (model.Observation, bool) {
	if w.seen == nil {
		return model.Observation{}, false
	}
	return *w.seen, true
}

func (w *world) recorder(namespaces ...client.Object) *recorder {
	clock := clocktesting.NewFakeClock(heard)
	return &recorder{
		Options: Options{
			Self: "b", Namespace: "comity-system", Peers: w, Observations: w, Import: true, Clock: clock,
			Exchange: Exchange{Problem: func(_ context.Context, name string) string {
				if w.missing[name] {
					return "missing"
				}
				return ""
			}},
		},
		local: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(namespaces...).Build(),
		wrote: map[types.NamespacedName]time.Time{},
	}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// TestWhatIsSaidToWhom lists, by exchange namespace, the reason or that what
// stands there is kept; a namespace of which nothing is said is cleared.
func TestWhatIsSaidToWhom(t *testing.T) {
	shop := namespace("shop", nil)
	var odd model.ClusterID = "x-to-y"
	oddNamespace := model.ScopedExchangeNamespace("b", odd)
	cases := []struct {
		name       string
		key        types.NamespacedName
		world      world
		namespaces []client.Object
		want       string
	}{
		{"each source hears of its own export alone", web, world{
			members: []model.Member{member("a", true, model.Connected), member("c", true, model.Connected)},
			exports: []model.Export{{Cluster: "a", UID: "ua"}, {Cluster: "c", UID: "uc"}},
			seen:    seen([]model.Problem{{Cluster: "c", Reason: model.ReasonAddressOverlap, Message: "overlap"}}, "a", "c"),
		}, []client.Object{shop}, "comity-b-to-a Imported ua, comity-b-to-c AddressOverlap uc"},
		{"what is not exported any more is cleared", web, world{
			members: []model.Member{member("a", true, model.Connected)},
		}, []client.Object{shop}, ""},
		{"unless its source was not read", web, world{
			members: []model.Member{member("a", false, model.Connected)},
		}, []client.Object{shop}, "comity-b-to-a kept"},
		{"or it is held", web, world{
			members: []model.Member{member("a", true, model.Connected)}, held: []model.Hold{{Cluster: "a"}},
		}, []client.Object{shop}, "comity-b-to-a kept"},
		{"nothing new is said before the loop looked", web, world{
			members: []model.Member{member("a", true, model.Connected)}, exports: []model.Export{{Cluster: "a"}},
		}, []client.Object{shop}, "comity-b-to-a kept"},
		{"nothing is written where nothing can be", web, world{
			members: []model.Member{member("a", true, model.Connected), member("c", true, model.Connected)},
			exports: []model.Export{{Cluster: "a", UID: "ua"}, {Cluster: "c", UID: "uc"}}, seen: seen(nil, "a", "c"), missing: map[string]bool{"comity-b-to-a": true},
		}, []client.Object{shop}, "comity-b-to-a kept, comity-b-to-c Imported uc"},
		{"an odd id", web, world{
			members: []model.Member{member(odd, true, model.Connected)}, exports: []model.Export{{Cluster: odd, UID: "u"}}, seen: seen(nil, odd),
		}, []client.Object{shop}, oddNamespace + " Imported u"},
		{"a lost cluster that was read hears of its export", web, world{
			members: []model.Member{member("a", true, model.Lost)}, exports: []model.Export{{Cluster: "a", UID: "ua"}}, seen: seen(nil, "a"),
		}, []client.Object{shop}, "comity-b-to-a Imported ua"},
		{"whose record is refused hears it, wherever the others are", web, world{
			members: []model.Member{member("a", true, model.Connected), member("c", true, model.Connected)},
			exports: []model.Export{{Cluster: "c", UID: "uc"}}, refused: []model.Refusal{{Cluster: "a", ExportUID: "ua", Field: "spec.ports"}}, seen: seen(nil, "c"),
		}, []client.Object{shop}, "comity-b-to-a InvalidRecord ua, comity-b-to-c Imported uc"},
		{"unless it is held", web, world{
			members: []model.Member{member("a", true, model.Connected)}, held: []model.Hold{{Cluster: "a"}},
			refused: []model.Refusal{{Cluster: "a", ExportUID: "ua", Field: "spec.ports"}},
		}, []client.Object{shop}, "comity-b-to-a kept"},
		{"there is no namespace", web, world{
			members: []model.Member{member("a", true, model.Connected)}, exports: []model.Export{{Cluster: "a", UID: "ua"}},
		}, nil, "comity-b-to-a NamespaceMissing ua"},
		{"Comity's own namespace", types.NamespacedName{Namespace: "comity-system", Name: "web"}, world{
			members: []model.Member{member("a", true, model.Connected)}, exports: []model.Export{{Cluster: "a", UID: "ua"}},
		}, nil, "comity-b-to-a NamespaceReserved ua"},
		{"an exchange namespace", types.NamespacedName{Namespace: "comity-b", Name: "web"}, world{
			members: []model.Member{member("a", true, model.Connected)}, exports: []model.Export{{Cluster: "a", UID: "ua"}},
		}, []client.Object{namespace("comity-b", map[string]string{model.LabelExchangeFrom: "b"})}, "comity-b-to-a NamespaceReserved ua"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			desired, kept, err := c.world.recorder(c.namespaces...).desire(t.Context(), c.key)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for at, spec := range desired {
				got = append(got, fmt.Sprint(at, " ", spec.Reason, " ", spec.ExportUID))
			}
			for at, keep := range kept {
				if keep {
					got = append(got, at+" kept")
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOneKeyIsWrittenOnceASecond(t *testing.T) {
	r := (&world{}).recorder()
	clock := r.Clock.(*clocktesting.FakeClock)
	if r.wait(web) != 0 {
		t.Error("the first write waits")
	}
	r.note(web)
	clock.Step(400 * time.Millisecond)
	if got := r.wait(web); got != 600*time.Millisecond {
		t.Errorf("waits for %s", got)
	}
	if r.wait(types.NamespacedName{Name: "other"}) != 0 {
		t.Error("another key waits")
	}
	clock.Step(600 * time.Millisecond)
	if r.wait(web) != 0 || len(r.wrote) != 0 {
		t.Error("waits for longer than a second, or forever")
	}
	r.note(web)
	clock.SetTime(heard.Add(-time.Hour))
	if r.wait(web) != 0 {
		t.Error("a clock that is set back stops reports")
	}
	for i := range 3 * maxWrote {
		r.note(types.NamespacedName{Name: fmt.Sprint(i)})
		clock.Step(time.Millisecond)
	}
	if len(r.wrote) > maxWrote {
		t.Errorf("remembers %d keys", len(r.wrote))
	}
}

func TestKeysOf(t *testing.T) {
	named := func(name string) *exchangev1alpha1.ImportRecord {
		return &exchangev1alpha1.ImportRecord{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	if diff := cmp.Diff([]types.NamespacedName{web}, keysOf(t.Context(), named(model.RecordName("shop", "web")))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := keysOf(t.Context(), named("odd")); got != nil {
		t.Errorf("got %v", got)
	}
}
