// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/compute"
	"github.com/comity-mcs/comity/status/condition"
)

func wantedStatus() mcsv1beta1.ServiceImportStatus {
	return mcsv1beta1.ServiceImportStatus{
		Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "b"}},
		Conditions: []metav1.Condition{
			condition.ImportReady(condition.ReasonImportReady, "m"), condition.SourcesAvailable(condition.ReasonConnected, "m"),
		},
	}
}

func TestWhatBelongsToOthersIsLeftOut(t *testing.T) {
	const ready, available = `.status.conditions[type="Ready"]`, `.status.conditions[type="Available"]`
	cases := []struct {
		name       string
		fields     []string
		conditions []string
		clusters   int
	}{
		{"one condition", []string{ready + ".message", ready + ".reason"}, []string{"Available"}, 1},
		{"the list of clusters", []string{".status.clusters"}, []string{"Ready", "Available"}, 0},
		{"one of the clusters", []string{`.status.clusters[cluster="b"].cluster`}, []string{"Ready", "Available"}, 0},
		{"everything", []string{ready + ".status", available + ".status", ".status.clusters"}, nil, 0},
		{"a field that Comity does not set", []string{".status.endpointSliceObjects"}, []string{"Ready", "Available"}, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rest := without(wantedStatus(), c.fields)
			var types []string
			for _, one := range rest.Conditions {
				types = append(types, one.Type)
			}
			if diff := cmp.Diff(c.conditions, types); diff != "" || len(rest.Clusters) != c.clusters {
				t.Errorf("%d clusters left; conditions %s", len(rest.Clusters), diff)
			}
		})
	}
}

func TestOnlyTheConflictOfManagersNamesFields(t *testing.T) {
	resource := schema.GroupResource{Group: mcsv1beta1.GroupName, Resource: "serviceimports"}
	conflict := apierrors.NewApplyConflict([]metav1.StatusCause{
		{Type: metav1.CauseTypeFieldManagerConflict, Field: ".status.x"}, {Type: metav1.CauseTypeFieldValueInvalid, Field: ".status.y"},
	}, "m")
	cases := []struct {
		name string
		err  error
		want []string
	}{
		{"no error", nil, nil},
		{"a conflict of managers", fmt.Errorf("apply: %w", conflict), []string{".status.x"}},
		{"an object that changed meanwhile", apierrors.NewConflict(resource, "web", errors.New("newer")), nil},
		{"anything else", errors.New("the API server is on fire"), nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, owned(c.err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAStatusIsTheSameWhateverItsTimes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*mcsv1beta1.ServiceImportStatus)
		same   bool
	}{
		"the same":                 {func(*mcsv1beta1.ServiceImportStatus) {}, true},
		"the same at another time": {func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions[0].LastTransitionTime = metav1.Now() }, true},
		"other words":              {func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions[0].Message = "n" }, false},
		"another source":           {func(s *mcsv1beta1.ServiceImportStatus) { s.Clusters = nil }, false},
	} {
		status := wantedStatus()
		c.change(&status)
		if same := compute.SameImport(wantedStatus(), status); same != c.same {
			t.Errorf("%s: same is %t, want %t", name, same, c.same)
		}
	}
}
