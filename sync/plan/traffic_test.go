// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
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

const (
	last       = model.LastResort
	unanswered = model.Unanswered
	withheld   = model.Withheld
)

func TestEndpointsFollowTraffic(t *testing.T) {
	type traffic = map[model.ClusterID]model.Traffic
	type count = map[string]int
	headless := func(e *model.Export) { e.Type = mcsv1beta1.Headless }
	b := func() *discoveryv1.EndpointSlice { return copyOf(slice("web-b", []string{"http"}, "10.2.0.1")) }
	c := func() *discoveryv1.EndpointSlice { return copyOf(slice("web-c", []string{"http"}, "10.3.0.1")) }
	both := func() *clusterset { return importOf("web").export("b", http(), b()).export("c", http(), c()) }
	for _, test := range []struct {
		name    string
		set     *clusterset
		traffic traffic
		ready   count
	}{
		{"another cluster has a ready endpoint", both(), traffic{"b": last}, count{"c": 1}},
		{"the endpoints of all are the last resort", both(), traffic{"b": last, "c": last}, count{"b": 1, "c": 1}},
		{"those of one do not answer", both(), traffic{"b": last, "c": unanswered}, count{"b": 1}},
		{"those of none answer", both(), traffic{"b": unanswered, "c": unanswered}, count{"b": 1, "c": 1}},
		{"those of all are withheld", both(), traffic{"b": withheld, "c": withheld}, count{}},
		{"those of one are withheld, and nothing is ready before the others", both(), traffic{"b": withheld, "c": unanswered}, count{"c": 1}},
		{"those of one are not written", both(), traffic{"b": model.Omitted}, count{"c": 1}},
		{"headless", importOf("web").export("b", http(), b()).edit(headless).export("c", http(), c()).edit(headless), traffic{"b": last}, count{"c": 1}},
		{"the other's endpoint is not ready", importOf("web").export("b", http(), b()).export("c", http(), notReady(c())), traffic{"b": last}, count{"b": 1}},
		{"the other's endpoint does not say whether it is ready: it is", importOf("web").export("b", http(), b()).export("c", http(), func() *discoveryv1.EndpointSlice {
			s := c()
			s.Endpoints[0].Conditions.Ready = nil
			return s
		}()), traffic{"b": last}, count{"c": 1}},
		{"no traffic may reach the other's port", importOf("web").export("b", http(), b()).export("c", ports(port("http", 81)), c()),
			traffic{"b": last}, count{"b": 1}},
		{"the other's endpoint is of a family that the Service has not", importOf("web").export("b", http(), b()).export("c", http(), func() *discoveryv1.EndpointSlice {
			s := c()
			s.AddressType, s.Endpoints[0].Addresses = discoveryv1.AddressTypeIPv6, []string{"fd00::1"}
			return s
		}()), traffic{"b": last}, count{"b": 1, "c": 1}},
		{"a cluster without endpoints", importOf("web").export("b", http()).export("c", http(), c()), traffic{"b": withheld}, count{"c": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := imported(t, test.set)
			in := test.set.in()
			before := readyOf(w)
			in.LocalCluster.Families, in.Traffic = nil, test.traffic
			p, err := w.converge(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.ready, readyOf(w)); diff != "" {
				t.Errorf("ready endpoints (-want +got):\n%s", diff)
			}
			for _, id := range []model.ClusterID{"b", "c"} { // each has one endpoint
				if want := before[string(id)] - test.ready[string(id)]; p.Unready[id] != want && test.traffic[id] != model.Omitted {
					t.Errorf("%d endpoints of %s are unready, want %d", p.Unready[id], id, want)
				}
			}
			if _, err := w.converge(test.set.in()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, readyOf(w)); diff != "" {
				t.Errorf("after all of it ended (-want +got):\n%s", diff)
			}
		})
	}
}

// What is kept has no source that says what was published.
func TestWhatIsKeptSaysWhatWasPublished(t *testing.T) {
	yes, no := ptr(true), ptr(false)
	published := []discoveryv1.EndpointConditions{
		{Ready: yes, Serving: yes, Terminating: no}, {Ready: no, Serving: no, Terminating: no}, {Ready: no, Serving: yes, Terminating: yes},
		{Ready: yes, Serving: no, Terminating: yes}, {Ready: no, Serving: no, Terminating: yes},
	}
	lastResort, none := discoveryv1.EndpointConditions{Ready: no, Serving: yes, Terminating: yes}, discoveryv1.EndpointConditions{Ready: no, Serving: no, Terminating: no}
	gone := discoveryv1.EndpointConditions{Ready: no, Serving: no, Terminating: yes}
	b := copyOf(slice("web-b", []string{"http"}, "10.2.0.1", "10.2.0.2", "10.2.0.3", "10.2.0.4", "10.2.0.5"))
	for i := range b.Endpoints {
		b.Endpoints[i].Conditions = published[i]
	}
	set := importOf("web").export("b", http(), b).export("c", http(), copyOf(slice("web-c", []string{"http"}, "10.3.0.1")))
	w := imported(t, set)
	for _, isKept := range []bool{false, true} {
		if isKept {
			set = importOf("web").export("c", http(), set.slices["c"]...).notRead("b")
		}
		for _, step := range []struct {
			traffic model.Traffic
			want    []discoveryv1.EndpointConditions
			writes  int
		}{
			{model.Served, published, 0},
			{last, []discoveryv1.EndpointConditions{lastResort, none, lastResort, lastResort, gone}, 1},
			{last, []discoveryv1.EndpointConditions{lastResort, none, lastResort, lastResort, gone}, 0},
			{unanswered, []discoveryv1.EndpointConditions{lastResort, none, lastResort, lastResort, gone}, 0},
			{withheld, []discoveryv1.EndpointConditions{none, none, gone, gone, gone}, 1},
			{model.Served, published, 1},
		} {
			w.writes = nil
			in := set.in()
			in.Traffic = map[model.ClusterID]model.Traffic{"b": step.traffic}
			if _, err := w.converge(in); err != nil {
				t.Fatal(err)
			}
			s, _ := w.objects["EndpointSlice default/"+web+"-b"].(*discoveryv1.EndpointSlice)
			var got []discoveryv1.EndpointConditions
			for _, e := range s.Endpoints {
				got = append(got, e.Conditions)
			}
			if diff := cmp.Diff(step.want, got); diff != "" || len(w.writes) != step.writes {
				t.Errorf("kept %t, traffic %d: writes %v, endpoints (-want +got):\n%s", isKept, step.traffic, w.writes, diff)
			}
		}
	}
	if diff := cmp.Diff(published[0], b.Endpoints[0].Conditions); diff != "" {
		t.Error("the input was changed")
	}
}

// TestTheLastReadyEndpointsStay draws readiness and traffic, and asks the naive
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
			in.Traffic = rapid.MapOf(rapid.SampledFrom([]model.ClusterID{"b", "c", "d"}), rapid.SampledFrom([]model.Traffic{last, unanswered})).Draw(t, "traffic")
			p, err := w.converge(in)
			if err != nil {
				t.Fatal(err)
			}
			ready := readyOf(w)
			if could && len(ready) == 0 {
				t.Fatal("the last ready endpoints were withdrawn")
			}
			for id := range in.Traffic {
				if p.Unready[id] > 0 && ready[string(id)] > 0 {
					t.Fatalf("%s: unready %v, ready %v", id, p.Unready, ready)
				}
			}
		}
	})
}

func TestEndpointsOfAnotherTierAreNotAZonesOwn(t *testing.T) {
	b := copyOf(slice("web-b", []string{"http"}, "10.2.0.1"))
	b.Endpoints[0].Zone = ptr("elsewhere")
	set := importOf("web").export("b", http(), b).edit(func(e *model.Export) { e.TrafficDistribution = ptr("PreferSameZone") }).
		export("c", http(), copyOf(slice("web-c", []string{"http"}, "10.3.0.1")))
	w := imported(t, set)
	in := set.in()
	in.LocalCluster.Zones, in.Traffic = []string{"zone-1", "zone-2"}, map[model.ClusterID]model.Traffic{"b": model.Preferred}
	if _, err := w.converge(in); err != nil {
		t.Fatal(err)
	}
	for _, o := range w.objects {
		if s, is := o.(*discoveryv1.EndpointSlice); is && plan.ClusterOf(s) == "b" {
			want := &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-1"}, {Name: "zone-2"}}}
			if diff := cmp.Diff(want, s.Endpoints[0].Hints); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}
}
