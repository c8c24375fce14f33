// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// fakeCache is that of one namespace, with one ExportRecord called name.
type fakeCache struct {
	informertest.FakeInformers
	name    string
	release chan struct{} // closed once it is synced
	ended   chan struct{} // closed when its context ended
	indexed []string
}

func (f *fakeCache) record(namespace string) *exchangev1alpha1.ExportRecord {
	r := &exchangev1alpha1.ExportRecord{}
	r.Namespace, r.Name = namespace, f.name
	return r
}

func (f *fakeCache) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	f.record(key.Namespace).DeepCopyInto(into.(*exchangev1alpha1.ExportRecord))
	return nil
}

func (f *fakeCache) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*exchangev1alpha1.ExportRecordList).Items = []exchangev1alpha1.ExportRecord{*f.record("")}
	return nil
}

func (f *fakeCache) Start(ctx context.Context) error {
	<-ctx.Done()
	close(f.ended)
	return nil
}

func (f *fakeCache) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-f.release:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *fakeCache) IndexField(_ context.Context, _ client.Object, field string, _ client.IndexerFunc) error {
	f.indexed = append(f.indexed, field)
	return nil
}

// create sends a creation to whoever watches ExportRecords there.
func (f *fakeCache) create(t *testing.T) {
	t.Helper()
	informer, err := f.FakeInformerFor(t.Context(), &exchangev1alpha1.ExportRecord{})
	if err != nil {
		t.Fatal(err)
	}
	informer.Add(f.record(""))
}

// fixture makes caches whose caches are named one after the other.
func fixture(t *testing.T, names ...string) (*namespaceCaches, func(n int) *fakeCache) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := exchangev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var made []*fakeCache
	s := &namespaceCaches{all: map[string]*namespaceCache{}, make: func(string) (cache.Cache, error) {
		f := &fakeCache{name: names[len(made)], release: make(chan struct{}), ended: make(chan struct{})}
		f.Scheme = scheme
		made = append(made, f)
		return f, nil
	}}
	return s, func(n int) *fakeCache { return made[n] }
}

func add(t *testing.T, s *namespaceCaches, namespace string, uid types.UID) (synced chan struct{}) {
	t.Helper()
	synced = make(chan struct{})
	if err := s.add(t.Context(), namespace, uid, func() { close(synced) }); err != nil {
		t.Fatal(err)
	}
	return synced
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal(what + ": not so within 10 s")
	}
}

func list(t *testing.T, s *namespaceCaches, opts ...client.ListOption) []string {
	t.Helper()
	var found exchangev1alpha1.ExportRecordList
	if err := s.List(t.Context(), &found, opts...); err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, r := range found.Items {
		names = append(names, r.Name)
	}
	return names
}

func TestNothingIsReadFromANamespaceBeforeAllOfItWas(t *testing.T) {
	s, made := fixture(t, "one", "two")
	first := add(t, s, "comity-a", "1")
	second := add(t, s, "comity-a-to-b", "2")
	if got := list(t, s); len(got) != 0 || s.isSynced("comity-a", "1") {
		t.Errorf("read %v from caches that are not synced", got)
	}
	var record exchangev1alpha1.ExportRecord
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: "comity-a", Name: "one"}, &record); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want that it is not found", err)
	}
	close(made(1).release)
	await(t, "the second is synced", second)
	if diff := cmp.Diff([]string{"two"}, list(t, s)); diff != "" {
		t.Errorf("one is synced (-want +got):\n%s", diff)
	}
	close(made(0).release)
	await(t, "the first is synced", first)
	if diff := cmp.Diff([]string{"one", "two"}, list(t, s)); diff != "" {
		t.Errorf("both are synced (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"one"}, list(t, s, client.InNamespace("comity-a"))); diff != "" {
		t.Errorf("one namespace (-want +got):\n%s", diff)
	}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: "comity-a", Name: "one"}, &record); err != nil || record.Name != "one" {
		t.Errorf("got %s, %v", record.Name, err)
	}
	if got := list(t, s, client.InNamespace("elsewhere")); len(got) != 0 {
		t.Errorf("read %v from a namespace that is not watched", got)
	}
}

func TestANamespaceMadeAnewIsReadAnew(t *testing.T) {
	s, made := fixture(t, "old", "new")
	synced := add(t, s, "comity-a", "1")
	close(made(0).release)
	await(t, "synced", synced)
	add(t, s, "comity-a", "1") // known: nothing happens, and synced is not called again
	again := add(t, s, "comity-a", "2")
	await(t, "the old cache ended", made(0).ended)
	if got := list(t, s); len(got) != 0 || s.isSynced("comity-a", "2") {
		t.Errorf("read %v, which is of the old namespace", got)
	}
	close(made(1).release)
	await(t, "synced anew", again)
	if diff := cmp.Diff([]string{"new"}, list(t, s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !s.remove("comity-a") || s.remove("comity-a") {
		t.Error("it is removed once")
	}
	await(t, "the new cache ended", made(1).ended)
}

func TestWatchesAndIndexesReachEveryNamespace(t *testing.T) {
	s, made := fixture(t, "one", "two")
	if err := s.IndexField(t.Context(), &exchangev1alpha1.ExportRecord{}, "field", nil); err != nil {
		t.Fatal(err)
	}
	add(t, s, "comity-a", "1")
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	records := &watch{caches: s, kind: &exchangev1alpha1.ExportRecord{}, keys: &handler.EnqueueRequestForObject{}}
	if err := records.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	add(t, s, "comity-a-to-b", "2")
	for n, want := range []string{"one", "two"} {
		// The handler is added soon: until then, nobody hears of what is created.
		for queue.Len() == 0 {
			made(n).create(t)
			time.Sleep(10 * time.Millisecond)
		}
		got, _ := queue.Get()
		if got.Name != want {
			t.Errorf("told of %s, want %s", got.Name, want)
		}
		time.Sleep(20 * time.Millisecond)
		queue.Done(got)
		for queue.Len() > 0 { // created more than once
			again, _ := queue.Get()
			queue.Done(again)
		}
		if diff := cmp.Diff([]string{"field"}, made(n).indexed); diff != "" {
			t.Errorf("indexes of %s (-want +got):\n%s", want, diff)
		}
	}
}
