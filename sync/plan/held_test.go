// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// shown is every endpoint of w, by address: with "-" if it is not ready.
func shown(w *world) []string {
	var out []string
	for _, o := range w.objects {
		s, is := o.(*discoveryv1.EndpointSlice)
		if !is {
			continue
		}
		for _, e := range s.Endpoints {
			mark := ""
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				mark = "-"
			}
			for _, address := range e.Addresses {
				out = append(out, mark+address)
			}
		}
	}
	slices.Sort(out)
	return out
}

// b has lost the copy of web-1 and still publishes web-2; c serves, too.
func TestASliceThatItsPublisherLostStays(t *testing.T) {
	first := func() *discoveryv1.EndpointSlice {
		return copyOf(slice("web-1", []string{"http"}, "10.2.0.1", "10.2.0.2"))
	}
	second := func() *discoveryv1.EndpointSlice { return copyOf(slice("web-2", []string{"http"}, "10.2.0.3")) }
	third := func() *discoveryv1.EndpointSlice { return copyOf(slice("web-3", []string{"http"}, "10.2.0.4")) }
	c := func() *discoveryv1.EndpointSlice { return copyOf(slice("web-c", []string{"http"}, "10.3.0.1")) }
	before := func() *clusterset {
		return importOf("web").export("b", http(), first(), second()).export("c", http(), c())
	}
	after := func() *clusterset { return importOf("web").export("b", http(), second()).export("c", http(), c()) }
	lost := map[model.ClusterID][]string{"b": {"web-1"}}
	for name, tc := range map[string]struct {
		set    *clusterset
		change func(*plan.ImportInput)
		want   []string
		writes int
	}{
		"it was removed": {after(), func(*plan.ImportInput) {}, []string{"10.2.0.3", "10.3.0.1"}, 1},
		"it was lost":    {after(), func(in *plan.ImportInput) { in.LostSlices = lost }, []string{"10.2.0.1", "10.2.0.2", "10.2.0.3", "10.3.0.1"}, 0},
		"a new one beside it takes no name of it": {importOf("web").export("b", http(), second(), third()).export("c", http(), c()), func(in *plan.ImportInput) { in.LostSlices = lost }, []string{"10.2.0.1", "10.2.0.2", "10.2.0.3", "10.2.0.4", "10.3.0.1"}, 1},
		"its cluster is down": {after(), func(in *plan.ImportInput) {
			in.LostSlices, in.Traffic = lost, map[model.ClusterID]model.Traffic{"b": unanswered}
		}, []string{"-10.2.0.1", "-10.2.0.2", "-10.2.0.3", "10.3.0.1"}, 2},
		"the import has its port no more": {importOf("web").export("b", ports(port("other", 90))), func(in *plan.ImportInput) { in.LostSlices = lost }, nil, 5},
		"its cluster exports it no more":  {importOf("web").export("c", http(), c()), func(in *plan.ImportInput) { in.LostSlices = lost }, []string{"10.3.0.1"}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			w := imported(t, before())
			w.writes = nil
			in := tc.set.in()
			tc.change(&in)
			if _, err := w.converge(in); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, shown(w)); diff != "" || len(w.writes) != tc.writes {
				t.Errorf("%d writes %v; endpoints (-want +got):\n%s", len(w.writes), w.writes, diff)
			}
		})
	}
}

// FAULT 32: a member cannot be read, and the administrator narrows what is accepted
// from it.
func TestWhatIsNotAcceptedAnyMoreGoesFromWhatIsKeptFAULT32(t *testing.T) {
	b := slice("web-b", []string{"http"}, "10.2.0.1", "10.2.0.130")
	b.Endpoints[0].Addresses = append(b.Endpoints[0].Addresses, "10.2.0.100")
	for accepted, want := range map[string][]string{
		"10.2.0.0/24":                   {"10.2.0.1", "10.2.0.100", "10.2.0.130", "10.3.0.1"},
		"10.2.0.0/25":                   {"10.2.0.1", "10.2.0.100", "10.3.0.1"},
		"192.0.2.0/24":                  {"10.3.0.1"},
		"10.2.0.0/24 but 10.2.0.0/28":   {"10.2.0.100", "10.2.0.130", "10.3.0.1"},
		"10.2.0.0/24 but 10.2.0.100/32": {"10.2.0.1", "10.2.0.130", "10.3.0.1"},
		"10.2.0.0/24 but 10.2.0.128/25": {"10.2.0.1", "10.2.0.100", "10.3.0.1"},
	} {
		t.Run(accepted, func(t *testing.T) {
			c := copyOf(slice("web-c", []string{"http"}, "10.3.0.1"))
			w := imported(t, importOf("web").export("b", http(), copyOf(b)).export("c", http(), c))
			in := importOf("web").export("c", http(), c).notRead("b").in()
			filter := exchange.Filter{}
			var text, own string
			if n, _ := fmt.Sscanf(accepted, "%s but %s", &text, &own); n == 2 {
				filter.PodCIDRs = []netip.Prefix{netip.MustParsePrefix(own)}
			}
			filter.Accepted = []netip.Prefix{netip.MustParsePrefix(text)}
			in.Accepted = map[model.ClusterID]exchange.Filter{"b": filter}
			p, err := w.converge(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, shown(w)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if w.objects["EndpointSlice default/"+p.DerivedName+"-b"] == nil {
				t.Error("the slice was deleted; it is to be emptied")
			}
		})
	}
}
