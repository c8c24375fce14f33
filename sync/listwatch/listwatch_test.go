// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func TestCheck(t *testing.T) {
	streamed := metav1.ListOptions{ResourceVersion: "900", SendInitialEvents: ptr.To(true)}
	first := metav1.ListOptions{SendInitialEvents: ptr.To(true)}
	at := func(version string) metav1.ListOptions { return metav1.ListOptions{ResourceVersion: version} }
	for _, c := range []struct {
		name   string
		opts   metav1.ListOptions
		store  string
		rewind bool
		asked  bool
	}{
		{"nothing happened", at("900"), "900", false, true},
		{"the store went on", at("900"), "1000", false, true},
		{"the store went back", at("1000"), "999", true, true},
		{"by many digits", at("1000000"), "1", true, true},
		{"from no version", at(""), "1", false, false},
		{"from any version", at("0"), "1", false, false},
		{"a streamed list", streamed, "1", true, true},
		{"a streamed list from no version", first, "1", false, false},
		{"versions are no numbers", at("b"), "a", false, true},
		{"the store says none", at("900"), "", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := false
			found, err := check(t.Context(), c.opts, func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				asked = true
				if opts.Limit != 1 || opts.ResourceVersion != "" {
					t.Errorf("asked with %+v; want one object, as new as the store", opts)
				}
				return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: c.store}}, nil
			})
			if err != nil || (found != nil) != c.rewind || asked != c.asked {
				t.Errorf("got %v, %v, asked %v", found, err, asked)
			}
		})
	}
}

func TestTheQuestionKeepsToWhatIsWatchedAndItsErrorIsNotHidden(t *testing.T) {
	opts := metav1.ListOptions{ResourceVersion: "9", LabelSelector: "a=b", FieldSelector: "metadata.name=c"}
	refused := errors.New("refused")
	_, err := check(t.Context(), opts, func(_ context.Context, asked metav1.ListOptions) (runtime.Object, error) {
		if asked.LabelSelector != opts.LabelSelector || asked.FieldSelector != opts.FieldSelector {
			t.Errorf("asked with %+v", asked)
		}
		return nil, refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
}

func TestNothingIsAskedForFromAVersionThatTheStoreDoesNotHave(t *testing.T) {
	for _, c := range []struct {
		name  string
		check error
		store string
		want  bool
		error func(error) bool
	}{
		{"the store went back", nil, "10", true, apierrors.IsResourceExpired},
		{"the store went on", nil, "900", false, func(err error) bool { return err == nil }},
		{"the API server has just started", errForbidden, "10", false, apierrors.IsForbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, found := false, error(nil)
			list := Checked(func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: c.store}}, c.check
			}, func(context.Context, metav1.ListOptions) (bool, error) {
				asked = true
				return true, nil
			}, func(f error) { found = f })
			answer, err := list(t.Context(), metav1.ListOptions{ResourceVersion: "900"})
			if (found != nil) != c.want || !c.error(err) || asked != (err == nil) || answer != asked {
				t.Errorf("answer %t, error %v, asked: %t, found %v", answer, err, asked, found)
			}
		})
	}
}

// store is an API server that restores and watches as the real one does: a
// watch from a version to come says nothing until the store has come to it.
type store struct {
	streams   bool // supports lists that are streamed by a watch
	mu        sync.Mutex
	version   int
	present   map[string]int // name → version
	watches   map[*watch.FakeWatcher]int
	forbidden int // so many more requests are, as those to an API server that has just started
	back      time.Time
}

// away refuses connections for so long.
func (s *store) away(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.back = time.Now().Add(d)
	for w := range s.watches {
		w.Stop()
	}
	clear(s.watches)
}

var errForbidden = apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("no roles yet"))

func (s *store) List(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case time.Now().Before(s.back):
		return nil, refused
	case s.forbidden > 0:
		s.forbidden--
		return nil, errForbidden
	case parse(opts.ResourceVersion) > s.version:
		return nil, tooLarge()
	}
	list := &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: format(s.version)}}
	for name, version := range s.present {
		list.Items = append(list.Items, *secret(name, version))
	}
	return list, nil
}

func (s *store) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := parse(opts.ResourceVersion)
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 100})
	switch {
	case time.Now().Before(s.back):
		return nil, refused
	case s.forbidden > 0:
		s.forbidden--
		return nil, errForbidden
	case opts.SendInitialEvents == nil:
	case !s.streams:
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), "", nil)
	case from > s.version:
		return nil, tooLarge()
	default:
		for name, version := range s.present {
			w.Add(secret(name, version))
		}
		end := secret("", s.version)
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		w.Action(watch.Bookmark, end)
		from = s.version
	}
	s.watches[w] = from
	return w, nil
}

// tooLarge is the answer to a request for a version that a store has not come to.
func tooLarge() error {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

func (s *store) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.present[name] = s.version
	for w, from := range s.watches {
		if s.version > from {
			w.Add(secret(name, s.version))
		}
	}
}

func (s *store) restore(version, forbidden int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.forbidden = version, forbidden
	for name, at := range s.present {
		if at > version {
			delete(s.present, name)
		}
	}
	for w := range s.watches {
		w.Stop()
	}
	clear(s.watches)
}

func secret(name string, version int) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: format(version)}}
}

func TestAnInformerFollowsAStoreThatWentBack(t *testing.T) {
	for _, c := range []struct {
		name      string
		streams   bool
		forbidden int
	}{
		{"its watch continues", true, 0},
		{"its watch is forbidden once, and it lists again by a stream", true, 1},
		{"its watch is forbidden twice, and it lists again", true, 2},
		{"the API server has no streams", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			testAnInformerFollows(t, &store{streams: c.streams, version: 10, present: map[string]int{}, watches: map[*watch.FakeWatcher]int{}}, c.forbidden)
		})
	}
}

func testAnInformerFollows(t *testing.T, s *store, forbidden int) {
	var logged lines
	source := &toolscache.ListWatch{ListWithContextFunc: s.List, WatchFuncWithContext: s.Watch}
	informer := NewInformer(logged.logger())(source, &corev1.Secret{}, 0, toolscache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	has := func(want ...string) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for time.Now().Before(deadline) {
			if keys := informer.GetStore().ListKeys(); sameSet(keys, want) {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatalf("the informer has %q, want %q", informer.GetStore().ListKeys(), want)
	}
	s.add("old")
	has("old")
	for _, name := range []string{"x", "y", "z"} {
		s.add(name)
	}
	has("old", "x", "y", "z")
	s.restore(11, forbidden)
	has("old")
	if !logged.has("v1.Secret", "resourceVersion 11 and was at 14 before") {
		t.Errorf("it lists again before it says that the store was restored: %q", logged.all())
	}
	s.add("new")
	has("old", "new")
}

// A reflector by itself would take up to a minute.
func TestEveryInformerIsCurrentSecondsAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 3 * time.Minute
		s := &store{streams: true, version: 10, present: map[string]int{}, watches: map[*watch.FakeWatcher]int{}}
		var logged lines
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		informers := make([]toolscache.SharedIndexInformer, 8)
		for i := range informers {
			informers[i] = NewInformer(logged.logger())(&toolscache.ListWatch{ListWithContextFunc: s.List, WatchFuncWithContext: s.Watch}, &corev1.Secret{}, 0, toolscache.Indexers{})
			go informers[i].RunWithContext(ctx)
		}
		synctest.Wait()
		s.away(outage)
		s.add("late")
		time.Sleep(outage + lastRetry*3/2)
		synctest.Wait()
		for i, informer := range informers {
			if keys := informer.GetStore().ListKeys(); !sameSet(keys, []string{"late"}) {
				t.Errorf("informer %d has %q", i, keys)
			}
		}
		if n := strings.Count(logged.all(), "the API server does not answer"); n != len(informers) {
			t.Errorf("%d lines; want one of each informer: %s", n, logged.all())
		}
	})
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	said []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.said = append(l.said, args)
	}, funcr.Options{})
}

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "\n")
}

func (l *lines) has(words ...string) bool {
	for _, word := range words {
		if !strings.Contains(l.all(), word) {
			return false
		}
	}
	return true
}

func format(version int) string { return strconv.Itoa(version) }

func parse(version string) int {
	n, _ := strconv.Atoi(version)
	return n
}

func sameSet(a, b []string) bool {
	return sets.New(a...).Equal(sets.New(b...))
}
