// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

func newQueue(t *testing.T) *Queue {
	t.Helper()
	queue := NewQueue(8)
	queue.Open("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	return queue
}

// next takes the next key from the queue; it fails the test if none comes.
func next(t *testing.T, queue *Queue) string {
	t.Helper()
	timer := time.AfterFunc(10*time.Second, queue.ShutDown)
	defer timer.Stop()
	request, ended := queue.Get()
	if ended {
		t.Fatal("no key was enqueued")
	}
	queue.Done(request)
	return request.Name
}

func TestASourceEnqueuesEveryListedKeyAtStartAndWhenAllMayBeDifferent(t *testing.T) {
	queue := newQueue(t)
	var changed, never Notifier
	var others []func()
	var listed atomic.Int32
	source := Source{
		Queue: queue,
		List: func(context.Context) ([]types.NamespacedName, error) {
			listed.Add(1)
			return []types.NamespacedName{key("a"), key("b"), key("a")}, nil
		},
		Subscribe: []Subscribe{changed.Subscribe, never.Subscribe, func(changed func(Change)) func() {
			others = append(others, func() { changed(Change{"b", key("c")}) }, func() { changed(Change{}) })
			return func() { others = nil }
		}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := source.Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	want := func(names ...string) {
		t.Helper()
		var got []string
		for range names {
			got = append(got, next(t, queue))
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			t.Fatalf("got %v; want %v", got, names)
		}
	}
	want("a", "b")
	changed.Key(key("z"))
	want("z")
	changed.All()
	want("a", "b")
	others[0]()
	want("c")
	others[1]()
	want("a", "b")
	if n := listed.Load(); n != 3 {
		t.Errorf("listed %d times; want once at start and once for each of the two changes of all keys", n)
	}
}

// waiting starts a source that lists key a, and counts that. Its first list waits, and not the
// key that changed.
func waiting(t *testing.T, queue *Queue, changed *Notifier, source Source) (listed *atomic.Int32) {
	t.Helper()
	listed = &atomic.Int32{}
	source.Queue, source.Subscribe = queue, []Subscribe{changed.Subscribe}
	source.List = func(context.Context) ([]types.NamespacedName, error) {
		listed.Add(1)
		return []types.NamespacedName{key("a")}, nil
	}
	if err := source.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	changed.All()
	changed.Key(key("z"))
	if got := next(t, queue); got != "z" || listed.Load() != 0 {
		t.Errorf("got %s after %d lists, want the key that changed, before a list", got, listed.Load())
	}
	return listed
}

func TestNothingIsListedBeforeTheControllerMayStart(t *testing.T) {
	queue, ready := newQueue(t), make(chan struct{})
	var changed Notifier
	listed := waiting(t, queue, &changed, Source{
		Required: []<-chan struct{}{nil, ready},
		First:    func(context.Context) { changed.All() },
	})
	close(ready)
	changed.All()
	select {
	case <-queue.CaughtUp():
		t.Error("caught up before what was listed is reconciled")
	default:
	}
	if got := next(t, queue); got != "a" || listed.Load() != 1 {
		t.Errorf("got %s after %d lists, want one", got, listed.Load())
	}
	<-queue.CaughtUp()
}

func TestTheFirstListWaitsAndOneListAnswersAllThatChangedMeanwhile(t *testing.T) {
	queue, first := newQueue(t), make(chan struct{})
	var changed Notifier
	listed := waiting(t, queue, &changed, Source{First: func(ctx context.Context) { Await(ctx, first) }})
	close(first)
	if got := next(t, queue); got != "a" {
		t.Errorf("got %s", got)
	}
	changed.All()
	changed.All()
	if got := next(t, queue); got != "a" || listed.Load() != 2 {
		t.Errorf("got %s after %d lists, want one for each time that keys changed together", got, listed.Load())
	}
}

func TestAStatusIsNoChangeByAUser(t *testing.T) {
	before := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 1, ResourceVersion: "1"}}
	for name, c := range map[string]struct {
		change func(*corev1.Service)
		passes bool
	}{
		"its status": {func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.0.0.1"}}
		}, false},
		"its spec":        {func(s *corev1.Service) { s.Generation = 2 }, true},
		"its labels":      {func(s *corev1.Service) { s.Labels = map[string]string{"a": "b"} }, true},
		"its annotations": {func(s *corev1.Service) { s.Annotations = map[string]string{"a": "b"} }, true},
	} {
		now := before.DeepCopy()
		now.ResourceVersion = "2"
		c.change(now)
		if got := WithoutStatus.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: now}); got != c.passes {
			t.Errorf("%s: passes is %v", name, got)
		}
	}
}

func TestNobodyIsNotifiedAfterTheEndOfTheSubscription(t *testing.T) {
	var n Notifier
	calls := 0
	cancel := n.Subscribe(func(Change) { calls++ })
	n.Key(key("a"))
	n.All()
	cancel()
	n.Key(key("a"))
	n.All()
	if calls != 2 {
		t.Errorf("%d calls; want the two from before the end", calls)
	}
}

// Without this a restart called every export pending until the policies were
// loaded, and exported again a moment later: two writes and two events for each.
func TestNoWorkerStartsBeforeEverythingThatItsSourceRequires(t *testing.T) {
	peers, policies := make(chan struct{}), make(chan struct{})
	s := &Source{Required: []<-chan struct{}{peers, nil, policies}}
	synced := make(chan error, 1)
	go func() { synced <- s.WaitForSync(t.Context()) }()
	for _, one := range []chan struct{}{policies, peers} {
		select {
		case err := <-synced:
			t.Fatalf("got %v, want it to wait for both", err)
		case <-time.After(20 * time.Millisecond):
		}
		close(one)
	}
	select {
	case err := <-synced:
		if err != nil {
			t.Errorf("got error %v once both are closed", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("still waits once both are closed")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&Source{Required: []<-chan struct{}{make(chan struct{})}}).WaitForSync(ended); err == nil {
		t.Error("got no error from a wait that was given up")
	}
}

func TestTheKeysOfAListAreThoseOfItsObjects(t *testing.T) {
	service := func(namespace string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	}
	reader := fake.NewClientBuilder().WithObjects(service("shop"), service("bank"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}).Build()
	for name, c := range map[string]struct {
		list client.ObjectList
		opts []client.ListOption
		want []types.NamespacedName
	}{
		"of all namespaces":              {&corev1.ServiceList{}, nil, []types.NamespacedName{{Namespace: "bank", Name: "web"}, {Namespace: "shop", Name: "web"}}},
		"of one":                         {&corev1.ServiceList{}, []client.ListOption{client.InNamespace("shop")}, []types.NamespacedName{{Namespace: "shop", Name: "web"}}},
		"of none":                        {&corev1.PodList{}, nil, nil},
		"of objects without a namespace": {&corev1.NamespaceList{}, nil, []types.NamespacedName{{Name: "shop"}}},
	} {
		keys, err := ListKeys(t.Context(), reader, c.list, Itself, c.opts...)
		slices.SortFunc(keys, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
		if err != nil || !slices.Equal(keys, c.want) {
			t.Errorf("%s: got %v and error %v; want %v", name, keys, err, c.want)
		}
	}
}

func TestAChangeOfOneKeyDoesNotWaitForThoseThatAreListed(t *testing.T) {
	queue := newQueue(t)
	var changed Notifier
	source := Source{
		Queue:     queue,
		Subscribe: []Subscribe{changed.Subscribe},
		List: func(context.Context) ([]types.NamespacedName, error) {
			return []types.NamespacedName{key("a"), key("b"), key("c")}, nil
		},
	}
	if err := source.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); queue.Unfinished() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of 3 listed keys are in the queue", queue.Unfinished())
		}
	}
	changed.Publish(Change{"b", key("c")})
	changed.Publish(Change{"b", key("z")})
	var got []string
	for range 4 {
		got = append(got, next(t, queue))
	}
	slices.Sort(got[2:]) // what was listed comes in any order
	if want := []string{"c", "z", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}
