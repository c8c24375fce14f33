// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

func refused(name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, name, errors.New("denied by policy"))
}

// of is an action on a slice of a cluster.
func of(source model.ClusterID, name string) plan.Action {
	return plan.Action{Verb: plan.Create, Object: slice(name), Source: source}
}

func update(a plan.Action) plan.Action {
	a.Verb, a.UID = plan.Update, "u"
	return a
}

func remove(a plan.Action) plan.Action {
	a.Verb, a.UID, a.ResourceVersion = plan.Delete, "u", "1"
	return a
}

// FAULT 30: a write that the API server refuses costs the cluster that it came
// from, and nothing else of the import.
func TestFault30ARefusedSliceCostsOnlyItsCluster(t *testing.T) {
	busy := apierrors.NewTooManyRequests("later", 1)
	service, last := plan.Action{Verb: plan.Create, Object: service("derived-1")}, plan.Action{Verb: plan.Delete, Object: service("old"), UID: "u", ResourceVersion: "1", AfterAll: true}
	imported := plan.Action{Object: &mcsv1beta1.ServiceImport{
		TypeMeta:   metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: "ServiceImport"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
	}}
	for _, c := range []struct {
		name    string
		actions []plan.Action
		answers []error
		sent    []string
		applied []string
		class   Class
		// problems are the clusters of Refusals.
		problems []model.ClusterID
	}{
		{
			name: "nothing is refused", actions: []plan.Action{service, of("b", "b-1"), last},
			sent: []string{"derived-1", "b-1", "old"}, applied: []string{"derived-1", "b-1"},
		},
		{
			name: "two slices of one cluster are", actions: []plan.Action{of("b", "b-1"), of("b", "b-2"), of("c", "c-1"), service},
			answers: []error{refused("b-1"), refused("b-2")},
			sent:    []string{"b-1", "b-2", "c-1", "derived-1"}, applied: []string{"c-1", "derived-1"}, class: Refused, problems: []model.ClusterID{"b"},
		},
		{
			name: "a slice of each cluster is", actions: []plan.Action{of("c", "c-1"), of("b", "b-1"), of("d", "d-1")},
			answers: []error{refused("c-1"), refused("b-1")},
			sent:    []string{"c-1", "b-1", "d-1"}, applied: []string{"d-1"}, class: Refused, problems: []model.ClusterID{"b", "c"},
		},
		{
			name: "a Service is only deleted once all its slices are", actions: []plan.Action{of("b", "b-1"), last},
			answers: []error{refused("b-1")}, sent: []string{"b-1"}, class: Refused, problems: []model.ClusterID{"b"},
		},
		{
			name: "the derived Service is, on which everything depends", actions: []plan.Action{service, of("b", "b-1")},
			answers: []error{refused("derived-1")}, sent: []string{"derived-1"}, class: Refused, problems: []model.ClusterID{""},
		},
		{
			name:    "an update of the derived Service is, while its endpoints change",
			actions: []plan.Action{update(service), of("b", "b-1"), update(of("b", "b-2")), update(of("c", "c-1")), update(imported), remove(of("c", "c-2")), last},
			answers: []error{refused("derived-1"), refused("b-2")},
			sent:    []string{"derived-1", "b-2", "c-1"}, applied: []string{"c-1"}, class: Refused, problems: []model.ClusterID{"", "b"},
		},
		{
			name:    "an update of the ServiceImport is",
			actions: []plan.Action{update(imported), remove(of("b", "b-1")), last},
			answers: []error{refused("web")}, sent: []string{"web"}, class: Refused, problems: []model.ClusterID{""},
		},
		{
			name: "another failure stops all that follows", actions: []plan.Action{of("b", "b-1"), of("c", "c-1"), of("d", "d-1")},
			answers: []error{refused("b-1"), busy}, sent: []string{"b-1", "c-1"}, class: Unavailable, problems: []model.ClusterID{"b"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{answers: c.answers}
			objects, err := New(s, nil).Apply(context.Background(), c.actions)
			var sent, applied []string
			for _, one := range s.sent {
				sent = append(sent, one.Name)
			}
			for _, o := range objects {
				applied = append(applied, o.GetName())
			}
			if diff := cmp.Diff(c.sent, sent); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.applied, applied); diff != "" {
				t.Errorf("applied (-want +got):\n%s", diff)
			}
			if (err == nil) != (c.class == "") || err != nil && ClassOf(err) != c.class {
				t.Errorf("error %v, want class %q", err, c.class)
			}
			var problems []model.ClusterID
			for _, p := range Refusals(err) {
				problems = append(problems, p.Cluster)
				if p.Reason != model.ReasonRefused || !strings.Contains(p.Message, "denied by policy") || !strings.Contains(p.Message, string(p.Cluster)) {
					t.Errorf("problem %+v", p)
				}
			}
			if diff := cmp.Diff(c.problems, problems); diff != "" {
				t.Errorf("problems of clusters (-want +got):\n%s", diff)
			}
		})
	}
}
