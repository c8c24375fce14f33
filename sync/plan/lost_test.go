// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

// readyOf counts the ready endpoints of each cluster that stand in w.
func readyOf(w *world) map[string]int {
	ready := map[string]int{}
	for _, o := range w.objects {
		s, is := o.(*discoveryv1.EndpointSlice)
		if !is {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready[s.Labels[model.LabelSourceCluster]]++
			}
		}
	}
	return ready
}

func notReady(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	for i := range s.Endpoints {
		s.Endpoints[i].Conditions.Ready = ptr(false)
	}
	return s
}

func TestEndpointsOfLostClusters(t *testing.T) {
	b := func() *discoveryv1.EndpointSlice { return copyOf(slice("web-b", []string{"http"}, "10.2.0.1")) }
	c := func() *discoveryv1.EndpointSlice { return copyOf(slice("web-c", []string{"http"}, "10.3.0.1")) }
	both := func() *clusterset { return importOf("web").export("b", http(), b()).export("c", http(), c()) }
	for _, test := range []struct {
		name      string
		set       *clusterset
		lost      []model.ClusterID
		onLost    model.OnLost
		withdrawn []model.ClusterID
		ready     map[string]int
	}{
		{"another cluster has a ready endpoint", both(), []model.ClusterID{"b"}, "", []model.ClusterID{"b"}, map[string]int{"c": 1}},
		{"all that have endpoints are lost: nobody is withdrawn", both(), []model.ClusterID{"c", "b"}, "", nil, map[string]int{"b": 1, "c": 1}},
		{"all are lost and the user wants none then", both(), []model.ClusterID{"c", "b"}, model.OnLostWithdraw, []model.ClusterID{"b", "c"}, map[string]int{}},
		{"the user wants them kept", both(), []model.ClusterID{"b"}, model.OnLostKeep, nil, map[string]int{"b": 1, "c": 1}},
		{"the other's endpoint is not ready", importOf("web").export("b", http(), b()).export("c", http(), notReady(c())),
			[]model.ClusterID{"b"}, "", nil, map[string]int{"b": 1}},
		{"the other's endpoint does not say whether it is ready: it is", importOf("web").export("b", http(), b()).export("c", http(), func() *discoveryv1.EndpointSlice {
			s := c()
			s.Endpoints[0].Conditions.Ready = nil
			return s
		}()), []model.ClusterID{"b"}, "", []model.ClusterID{"b"}, map[string]int{"c": 1}},
		{"no traffic may reach the other's port", importOf("web").export("b", http(), b()).export("c", ports(port("http", 81)), c()),
			[]model.ClusterID{"b"}, "", nil, map[string]int{"b": 1}},
		{"the other's endpoint is of a family that the Service has not", importOf("web").export("b", http(), b()).export("c", http(), func() *discoveryv1.EndpointSlice {
			s := c()
			s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeIPv6, []string{"fd00::1"}
			return s
		}()), []model.ClusterID{"b"}, "", nil, map[string]int{"b": 1, "c": 1}},
		{"a lost cluster without endpoints has nothing to withdraw", importOf("web").export("b", http()).export("c", http(), c()),
			[]model.ClusterID{"b"}, "", nil, map[string]int{"c": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := imported(t, test.set)
			in := test.set.in()
			in.LocalCluster.Families, in.Lost, in.OnLost = nil, test.lost, test.onLost
			p, err := w.converge(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.withdrawn, p.Withdrawn); diff != "" {
				t.Errorf("withdrawn (-want +got):\n%s", diff)
			}
			for _, id := range []model.ClusterID{"b", "c"} { // each has one endpoint
				if counted := p.WithdrawnEndpoints[id]; (counted == 1) != slices.Contains(test.withdrawn, id) || counted > 1 {
					t.Errorf("%d withdrawn endpoints of %s", counted, id)
				}
			}
			if diff := cmp.Diff(test.ready, readyOf(w)); diff != "" {
				t.Errorf("ready endpoints (-want +got):\n%s", diff)
			}
			for _, write := range w.writes {
				if write[:6] != "update" {
					t.Errorf("wrote %s", write)
				}
			}
			if _, err := w.converge(test.set.in()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(readyOf(imported(t, test.set)), readyOf(w)); diff != "" {
				t.Errorf("after the clusters were found again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAWithdrawnEndpointKeepsWhetherItTerminates(t *testing.T) {
	set := twoClusters()
	set.slices["b"][0].Endpoints[0].Conditions.Terminating = ptr(true)
	in := set.in()
	in.Lost = []model.ClusterID{"b"}
	w := newWorld()
	if _, err := w.converge(in); err != nil {
		t.Fatal(err)
	}
	s, _ := w.objects["EndpointSlice default/"+web+"-b"].(*discoveryv1.EndpointSlice)
	want := discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(false), Terminating: ptr(true)}
	if diff := cmp.Diff(want, s.Endpoints[0].Conditions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !*set.slices["b"][0].Endpoints[0].Conditions.Ready {
		t.Error("the input was changed")
	}
}

// TestALostAndUnsyncedClusterOfAnImportNobodyElseExports: there is nothing left
// to lead traffic to, so only the user can want its endpoints withdrawn.
func TestALostAndUnsyncedClusterOfAnImportNobodyElseExports(t *testing.T) {
	for _, onLost := range []model.OnLost{"", model.OnLostWithdraw} {
		w := imported(t, importOf("web").export("b", http(), copyOf(slice("s", []string{"http"}, "10.2.0.1"))))
		in := importOf("web").notRead("b").in()
		in.Lost, in.OnLost = []model.ClusterID{"b"}, onLost
		p, err := w.converge(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := readyOf(w)["b"]; (got == 0) != (onLost == model.OnLostWithdraw) || (len(p.Withdrawn) == 1) != (got == 0) {
			t.Errorf("on-lost %q: %d ready endpoints, withdrawn %v", onLost, got, p.Withdrawn)
		}
		if w.objects["ServiceImport default/web"] == nil || w.objects["Service default/"+web] == nil {
			t.Errorf("on-lost %q: something was deleted", onLost)
		}
	}
}

// TestTheLastReadyEndpointsStay draws readiness and losses, and asks the naive
// question: could somebody be served before, and can nobody now?
func TestTheLastReadyEndpointsStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			set := importOf("web")
			could := false
			for _, id := range []model.ClusterID{"a", "b", "c", "d"} {
				s := slice("s-"+string(id), []string{"http"}, fmt.Sprintf("10.%d.0.1", id[0]))
				if id != "a" {
					s = copyOf(s)
				}
				if rapid.Bool().Draw(t, "unready") {
					notReady(s)
				} else {
					could = true
				}
				set.export(id, http(), s)
			}
			in := set.in()
			in.Lost = rapid.SliceOfDistinct(rapid.SampledFrom([]model.ClusterID{"b", "c", "d"}), func(id model.ClusterID) model.ClusterID { return id }).Draw(t, "lost")
			in.OnLost = rapid.SampledFrom([]model.OnLost{"", model.OnLostKeep, model.OnLostWithdrawUnlessLast}).Draw(t, "on lost")
			p, err := w.converge(in)
			if err != nil {
				t.Fatal(err)
			}
			ready := readyOf(w)
			if could && len(ready) == 0 {
				t.Fatal("the last ready endpoints were withdrawn")
			}
			for _, id := range in.Lost {
				if got := slices.Contains(p.Withdrawn, id); got && ready[string(id)] > 0 || got && in.OnLost == model.OnLostKeep {
					t.Fatalf("%s: withdrawn %v, ready %v", id, p.Withdrawn, ready)
				}
			}
		}
	})
}
