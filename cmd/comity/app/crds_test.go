// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// crdInterval is how often a watch checks.
const crdInterval = 2 * time.Second

// serving is an API server that serves what is required, but for what without drops.
func serving(without ...string) *fake.FakeDiscovery {
	d := &fake.FakeDiscovery{Fake: &clienttesting.Fake{}}
	for gv, names := range required {
		list := &metav1.APIResourceList{GroupVersion: gv}
		for _, name := range names {
			if !strings.Contains(strings.Join(without, " ")+" ", name+"."+gv+" ") {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
			}
		}
		if len(list.APIResources) > 0 {
			d.Resources = append(d.Resources, list)
		}
	}
	return d
}

var (
	mcs     = mcsv1beta1.GroupVersion.String()
	allOfIt = []string{"serviceexports." + mcs, "serviceexports/status." + mcs, "serviceimports." + mcs, "serviceimports/status." + mcs}
)

func TestMissingNamesWhatIsNotServed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		served *fake.FakeDiscovery
		want   []string // none: nothing is missing
		not    string
	}{
		{"all is served", serving(), nil, ""},
		{"a whole group is not", serving(allOfIt...), []string{"serviceexports." + mcs, "serviceimports." + mcs, "config/crd", "continues when they are served"}, "exportpolicies"},
		{"one kind of a group is not", serving("serviceimports."+mcs, "serviceimports/status."+mcs), []string{"serviceimports." + mcs}, "serviceexports"},
		{"a definition is too old to have a status", serving("serviceexports/status." + mcs), []string{"serviceexports/status." + mcs, "older than"}, "serviceimports"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := missing(tc.served)
			if (err == nil) != (len(tc.want) == 0) {
				t.Fatalf("got error %v", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want it to name %q", err, part)
				}
			}
			if tc.not != "" && strings.Contains(err.Error(), tc.not) {
				t.Errorf("got %q, want it not to name %q", err, tc.not)
			}
		})
	}
}

// silent answers nothing about any group.
type silent struct{ *fake.FakeDiscovery }

func (silent) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	return nil, errors.New("no answer about " + gv)
}

func TestAnOutageIsToldInTheSameWordsEachTime(t *testing.T) {
	said := map[string]bool{}
	for range 50 {
		said[missing(silent{serving()}).Error()] = true
	}
	if len(said) != 1 {
		t.Errorf("got %d different messages of one outage, want 1", len(said))
	}
}

// growing is an API server that comes to serve more.
type growing struct {
	*fake.FakeDiscovery
	now atomic.Pointer[fake.FakeDiscovery]
}

func (g *growing) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	return g.now.Load().ServerResourcesForGroupVersion(gv)
}

func TestWaitSaysOnceWhatItWaitsForAndGoesOnWhenItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		d := &growing{}
		d.now.Store(serving(allOfIt...))
		state := &health{state: errors.New("not looked yet")}
		done := make(chan error, 1)
		go func() {
			done <- (&crdWatch{discovery: d, log: log, report: state.set}).await(t.Context(), crdInterval)
		}()
		for range 5 {
			synctest.Wait()
			if err := state.notReady(); err == nil || !strings.Contains(err.Error(), "serviceexports."+mcs) {
				t.Fatalf("got readiness %v, want it to name what is missing", err)
			}
			time.Sleep(crdInterval) // of the bubble: no time passes
		}
		synctest.Wait()
		if len(lines) != 1 {
			t.Errorf("got %d lines, want one: %q", len(lines), lines)
		}
		d.now.Store(serving())
		time.Sleep(crdInterval) // of the bubble: no time passes
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil || state.notReady() != nil {
				t.Errorf("got error %v and readiness %v, want none", err, state.notReady())
			}
		default:
			t.Error("still waits, although everything is served")
		}
	})
}

// FAULT 36: without the definition of Peers an agent starts, and is not ready.
func TestFault36WithoutPeersAnAgentStartsAndIsNotReady(t *testing.T) {
	group := exchangev1alpha1.GroupVersion.String()
	for _, tc := range []struct {
		without []string
		starts  bool
	}{
		{[]string{"peers." + group, "peers/status." + group}, true},
		{[]string{"peers/status." + group}, true},
		{[]string{"peers." + group, "peers/status." + group, "memberrecords." + group}, false},
	} {
		err := missing(serving(tc.without...))
		if err == nil || !strings.Contains(err.Error(), tc.without[0]) || startsWithout(err) != tc.starts {
			t.Errorf("without %v: got readiness %v", tc.without, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), map[bool]time.Duration{true: time.Minute, false: 100 * time.Millisecond}[tc.starts])
		err = (&crdWatch{discovery: serving(tc.without...), log: logr.Discard(), report: func(error) {}}).await(ctx, crdInterval)
		cancel()
		if (err == nil) != tc.starts {
			t.Errorf("without %v: the wait ends with %v", tc.without, err)
		}
	}
	if startsWithout(errors.New("no answer")) || startsWithout(nil) {
		t.Error("another error is taken for a missing definition")
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- (&crdWatch{discovery: serving(allOfIt...), log: logr.Discard(), report: func(error) {}}).await(ctx, crdInterval)
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that it was canceled", err)
		}
	})
}

func TestWatchIsNotReadyWhileADefinitionIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		d := &growing{}
		d.now.Store(serving())
		state := &health{}
		go func() {
			(&crdWatch{discovery: d, log: log, report: state.set}).watch(t.Context(), crdInterval)
		}()
		pass := func() {
			time.Sleep(2 * crdInterval) // of the bubble: no time passes
			synctest.Wait()
		}
		pass()
		if err := state.notReady(); err != nil || len(lines) != 0 {
			t.Fatalf("with everything served got %v and %q, want nothing", err, lines)
		}
		d.now.Store(serving(allOfIt...))
		pass()
		if err := state.notReady(); err == nil || !strings.Contains(err.Error(), "serviceexports."+mcs) || len(lines) != 1 {
			t.Fatalf("got readiness %v and lines %q, want what is missing, said once", err, lines)
		}
		d.now.Store(serving())
		pass()
		if err := state.notReady(); err != nil || len(lines) != 2 {
			t.Errorf("got readiness %v and lines %q, want ready again", err, lines)
		}
	})
}

func TestWatchStaysReadyWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &health{}
		go func() {
			(&crdWatch{discovery: silent{serving()}, log: logr.Discard(), report: state.set}).watch(t.Context(), crdInterval)
		}()
		time.Sleep(2 * crdInterval) // of the bubble: no time passes
		synctest.Wait()
		if err := state.notReady(); err != nil {
			t.Errorf("got %v, want ready", err)
		}
	})
}
