// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/sync/plan"
)

// dependence writes an action with what it says of the actions after and before it.
func dependence(actions []plan.Action) []string {
	var out []string
	for _, a := range actions {
		text := string(a.Verb) + " " + a.Object.GetObjectKind().GroupVersionKind().Kind
		if a.Source != "" {
			text += fmt.Sprintf(" of %s", a.Source)
		}
		if a.AfterAll {
			text += ", after all"
		}
		out = append(out, text)
	}
	return out
}

// FAULT 30: only slices may be refused without consequences for the rest.
func TestFault30OnlySlicesAreIndependent(t *testing.T) {
	exported := importOf("web").export("b", http(), copyOf(slice("x", []string{"http"}, "10.2.0.1"))).
		export("c", http(), copyOf(slice("y", []string{"http"}, "10.3.0.1")))
	w := newWorld()
	in := exported.in()
	in.Current = w.current(in.Key)
	first := plan.Import(in)
	if diff := cmp.Diff([]string{"create Service", "create EndpointSlice of b", "create EndpointSlice of c"}, dependence(first.Actions)); diff != "" {
		t.Errorf("creation (-want +got):\n%s", diff)
	}
	if _, err := w.converge(exported.in()); err != nil {
		t.Fatal(err)
	}
	gone := exported.in()
	gone.Desired, gone.Sources, gone.Current = nil, nil, w.current(in.Key)
	want := []string{"delete ServiceImport", "delete EndpointSlice of b", "delete EndpointSlice of c", "delete Service, after all"}
	if diff := cmp.Diff(want, dependence(plan.Import(gone).Actions)); diff != "" {
		t.Errorf("removal (-want +got):\n%s", diff)
	}
}

// FAULT 30: Kubernetes empties its slices when the selector of the derived Service
// goes, so those of this cluster must exist before.
func TestFault30TheSelectorStaysUntilTheSlicesOfThisClusterExist(t *testing.T) {
	exported := importOf("web").export("a", http(), slice("own", []string{"http"}, "10.1.0.1")).
		export("b", http(), copyOf(slice("x", []string{"http"}, "10.2.0.1")))
	w := newWorld()
	maintained := exported.in()
	maintained.MaintainSelectors, maintained.Desired.Selector = true, map[string]string{"app": "web"}
	if _, err := w.converge(maintained); err != nil {
		t.Fatal(err)
	}
	dropped := w.sees(exported.in())
	want := []string{"create EndpointSlice", "update Service"}
	if diff := cmp.Diff(want, dependence(plan.Import(dropped).Actions)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
