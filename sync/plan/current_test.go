// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/plan"
)

func TestAfterShowsWhatWasDeletedAndApplied(t *testing.T) {
	deleted := func(version, kind, name string) plan.Action {
		return plan.Action{Verb: plan.Delete, Object: &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		}}
	}
	before := plan.Current{
		Services: []*corev1.Service{foreignService("s-1"), foreignService("s-2")},
		Slices:   []*discoveryv1.EndpointSlice{foreignSlice("e-1", "web", "b"), foreignSlice("e-2", "web", "b"), foreignSlice("e-3", "web", "b")},
		Import:   foreignImport("web"),
	}
	unchanged := plan.Current{
		Services: []*corev1.Service{before.Services[0], before.Services[1]},
		Slices:   []*discoveryv1.EndpointSlice{before.Slices[0], before.Slices[1], before.Slices[2]},
		Import:   before.Import,
	}
	applied, added := foreignSlice("e-2", "web", "c"), foreignService("s-3")
	for _, c := range []struct {
		name    string
		done    []plan.Action
		applied []plan.Object
		want    plan.Current
	}{
		{"nothing was done", nil, nil, before},
		{
			"one of each kind was deleted",
			[]plan.Action{
				deleted("v1", "Service", "s-1"), deleted("discovery.k8s.io/v1", "EndpointSlice", "e-1"),
				deleted("multicluster.x-k8s.io/v1beta1", "ServiceImport", "web"),
			},
			nil,
			plan.Current{Services: before.Services[1:], Slices: before.Slices[1:]},
		},
		{
			"an object was applied, one is new, and one was deleted before it was created again",
			[]plan.Action{
				{Verb: plan.Update, Object: applied}, {Verb: plan.Create, Object: added},
				deleted("discovery.k8s.io/v1", "EndpointSlice", "e-3"), {Verb: plan.Create, Object: before.Slices[2]},
			},
			[]plan.Object{applied, added, before.Slices[2]},
			plan.Current{
				Services: append(before.Services[:2:2], added), Import: before.Import,
				Slices: []*discoveryv1.EndpointSlice{before.Slices[0], applied, before.Slices[2]},
			},
		},
	} {
		if diff := cmp.Diff(c.want, before.After(c.done, c.applied)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if diff := cmp.Diff(unchanged, before); diff != "" {
			t.Errorf("%s: the input changed (-before +after):\n%s", c.name, diff)
		}
	}
}
