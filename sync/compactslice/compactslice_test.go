// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compactslice

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	"github.com/comity-mcs/comity/sync/model"
)

// drawn is a slice with every field filled, whatever fields there are.
func drawn(t *testing.T, n int64) *discoveryv1.EndpointSlice {
	t.Helper()
	s := &discoveryv1.EndpointSlice{}
	randfill.NewWithSeed(n).NilChance(0.2).NumElements(1, 4).Funcs(
		func(at *metav1.Time, c randfill.Continue) { *at = metav1.Unix(c.Int63n(1<<32), 0) },
		func(f *metav1.FieldsV1, c randfill.Continue) { f.SetRawString(c.String(0)) },
	).Fill(s)
	s.AddressType = discoveryv1.AddressTypeIPv4
	return s
}

func TestWhatIsPackedComesBackAsItWas(t *testing.T) {
	for n := range int64(300) {
		want := drawn(t, n)
		given := want.DeepCopy()
		packed, err := Transform(given)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Open(packed.(*discoveryv1.EndpointSlice))
		if err != nil {
			t.Fatal(err)
		}
		want.TypeMeta = metav1.TypeMeta{} // caches hold no kind
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("draw %d (-packed +opened):\n%s", n, diff)
		}
	}
}

func TestOfAPackedSliceCanBeReadWhatEventsAreAbout(t *testing.T) {
	s := derived(3, 10)
	s.DeletionTimestamp = ptr.To(metav1.Unix(7, 0))
	empty := derived(4, 0)
	for _, c := range []struct {
		name      string
		slice     *discoveryv1.EndpointSlice
		endpoints bool
	}{{"with endpoints", s, true}, {"without", empty, false}} {
		t.Run(c.name, func(t *testing.T) {
			obj, err := Transform(c.slice.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			got := obj.(*discoveryv1.EndpointSlice)
			if got.Namespace != c.slice.Namespace || got.Name != c.slice.Name || got.ResourceVersion != c.slice.ResourceVersion ||
				!reflect.DeepEqual(got.Labels, c.slice.Labels) || !got.DeletionTimestamp.Equal(c.slice.DeletionTimestamp) {
				t.Errorf("got metadata %+v", got.ObjectMeta)
			}
			if !model.IsManaged(got) {
				t.Error("it is not known as Comity's own any more")
			}
			if has := len(got.Endpoints) > 0; has != c.endpoints {
				t.Errorf("has endpoints: %v, want %v", has, c.endpoints)
			}
			if got.AddressType == discoveryv1.AddressTypeIPv4 {
				t.Error("it passes for a slice that is not packed")
			}
			again, err := Transform(got)
			if err != nil || again != obj {
				t.Errorf("packed twice: %v, %v", again, err)
			}
		})
	}
}

func TestWhatIsNotPackedIsLeftAlone(t *testing.T) {
	s := derived(1, 1)
	if got, err := Open(s); err != nil || got != s {
		t.Errorf("opened a slice that is not packed: %v, %v", got, err)
	}
	tombstone := cache.DeletedFinalStateUnknown{Key: "a/b", Obj: s}
	if got, err := Transform(tombstone); err != nil || got != tombstone {
		t.Errorf("transformed a tombstone: %v, %v", got, err)
	}
	broken := &discoveryv1.EndpointSlice{AddressType: addressType, ObjectMeta: metav1.ObjectMeta{GenerateName: "x"}}
	if got, err := Open(broken); err == nil {
		t.Errorf("opened what is nothing: %v", got)
	}
}

func TestSharedValuesAreNeverMixedUp(t *testing.T) {
	// More than are kept, so that values take each other's place, and such as hide others.
	for n := range 4096 {
		for _, want := range []map[string]string{
			{"service": fmt.Sprint(n)}, {"a": fmt.Sprintf(`%d", "b":"c`, n)}, {"a": fmt.Sprint(n), "b": "c"},
		} {
			if got := once(maps.Clone(want)); !reflect.DeepEqual(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	}
}

func BenchmarkTransform(b *testing.B) {
	slice := derived(3, 10)
	for b.Loop() {
		if _, err := Transform(slice.DeepCopy()); err != nil {
			b.Fatal(err)
		}
	}
}

// derived is the n-th of the slices of a Service as a cache reads it.
func derived(n, endpoints int) *discoveryv1.EndpointSlice {
	at := metav1.NewTime(time.Unix(int64(1_700_000_000+n), 0))
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: string([]byte("shop")), Name: fmt.Sprintf("derived-1480464860-a-%05d", n), UID: types.UID(fmt.Sprintf("0c9ad1f0-63c5-4b0a-9f0e-%012d", n)),
			ResourceVersion: fmt.Sprint(100000 + n), Generation: 1, CreationTimestamp: at,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: "derived-1480464860", discoveryv1.LabelManagedBy: model.ManagedBy,
				model.LabelServiceName: "web", model.LabelSourceCluster: "a",
			},
			Annotations:   map[string]string{model.AnnotationSourceSlice: fmt.Sprintf("web-%05d", n), model.AnnotationApplied: "0011223344556677"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "discovery.k8s.io/v1", Time: &at, FieldsType: "FieldsV1"}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.96.%d.%d", n%250, i)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			Zone:       ptr.To(fmt.Sprintf("zone-%d", i%3)),
		})
	}
	return s
}

// BenchmarkMemory tells what the cache holds for one slice of ten endpoints, in
// an indexer as informers have it: B/slice.
func BenchmarkMemory(b *testing.B) {
	for _, c := range []struct {
		name string
		pack bool
	}{{"packed", true}, {"plain", false}} {
		b.Run(c.name, func(b *testing.B) {
			const count = 5000
			for b.Loop() {
				before := live()
				store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"import": func(obj any) ([]string, error) {
					return []string{obj.(metav1.Object).GetLabels()[model.LabelServiceName]}, nil
				}})
				for n := range count {
					var s any = decoded(b, derived(n, 10))
					if c.pack {
						var err error
						if s, err = Transform(s); err != nil {
							b.Fatal(err)
						}
					}
					if err := store.Add(s); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(live()-before)/count, "B/slice")
				runtime.KeepAlive(store)
			}
		})
	}
}

// decoded is a slice as it comes from a server, sharing nothing.
func decoded(b *testing.B, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	raw, err := s.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	out := &discoveryv1.EndpointSlice{}
	if err := out.Unmarshal(raw); err != nil {
		b.Fatal(err)
	}
	return out
}

func live() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func BenchmarkOpen(b *testing.B) {
	for _, endpoints := range []int{10, 100} {
		b.Run(fmt.Sprint(endpoints), func(b *testing.B) {
			obj, err := Transform(derived(1, endpoints))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Open(obj.(*discoveryv1.EndpointSlice)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
