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

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
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

// watching runs watchDefinitions, and gives the health that it reports to, its lines and whether it
// called start.
func watching(ctx context.Context, d discovery.DiscoveryInterface) (*health, *[]string, *bool) {
	state, lines, started := &health{checks: []func() error{func() error { return nil }}}, &[]string{}, new(false)
	log := funcr.New(func(_, line string) { *lines = append(*lines, line) }, funcr.Options{})
	go watchDefinitions(ctx, d, crdInterval, log, state.set, func() { *started = true })
	return state, lines, started
}

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
			synctest.Test(t, func(t *testing.T) {
				state, _, _ := watching(t.Context(), tc.served)
				synctest.Wait()
				err := state.notReady()
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
		_, err := missing(silent{serving()})
		said[err.Error()] = true
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

func TestAnAgentStartsOnceTheDefinitionsAreThereAndIsNotReadyWhileOneIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &growing{}
		d.now.Store(serving(allOfIt...))
		state, lines, started := watching(t.Context(), d)
		for _, step := range []struct {
			name           string
			without        []string
			ready, started bool
			lines          int
		}{
			{"it waits, and says for what once", allOfIt, false, false, 1},
			{"all is served", nil, true, true, 2},
			{"a definition is deleted", allOfIt, false, true, 3},
			{"it is back", nil, true, true, 4},
		} {
			d.now.Store(serving(step.without...))
			time.Sleep(5 * crdInterval) // of the bubble: no time passes
			synctest.Wait()
			err := state.notReady()
			if (err == nil) != step.ready || err != nil && !strings.Contains(err.Error(), "serviceexports."+mcs) {
				t.Errorf("%s: got readiness %v, want ready: %t", step.name, err, step.ready)
			}
			if *started != step.started || len(*lines) != step.lines {
				t.Errorf("%s: started: %t, lines %q; want %t and %d", step.name, *started, *lines, step.started, step.lines)
			}
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
		synctest.Test(t, func(t *testing.T) {
			state, _, started := watching(t.Context(), serving(tc.without...))
			synctest.Wait()
			if err := state.notReady(); err == nil || !strings.Contains(err.Error(), tc.without[0]) || *started != tc.starts {
				t.Errorf("without %v: got readiness %v, started: %t", tc.without, err, *started)
			}
		})
	}
}

// falling is an API server that serves everything until it does not answer any more.
type falling struct {
	*fake.FakeDiscovery
	silent atomic.Bool
}

func (f *falling) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	if f.silent.Load() {
		return nil, errors.New("no answer about " + gv)
	}
	return f.FakeDiscovery.ServerResourcesForGroupVersion(gv)
}

func TestAnAPIServerThatDoesNotAnswerIsAwaitedAndEndsNoReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &falling{FakeDiscovery: serving()}
		d.silent.Store(true)
		state, _, started := watching(t.Context(), d)
		synctest.Wait()
		if err := state.notReady(); err == nil || !strings.Contains(err.Error(), "does not respond") || *started {
			t.Errorf("got readiness %v, started: %t, want that it waits", err, *started)
		}
		for _, silent := range []bool{false, true} {
			d.silent.Store(silent)
			time.Sleep(2 * crdInterval) // of the bubble: no time passes
			synctest.Wait()
			if err := state.notReady(); err != nil || !*started {
				t.Errorf("silent: %t: got %v, started: %t, want ready", silent, err, *started)
			}
		}
	})
}
