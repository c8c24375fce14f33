// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
)

// answering is a client whose API server answers a status write with err and
// that hands over what was sent.
func answering(err error, sent *map[string]any) client.Client {
	return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		SubResourceApply: func(_ context.Context, _ client.Client, subresource string, object runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
			content, convert := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			if convert != nil {
				return convert
			}
			content["subresource"] = subresource
			*sent = content
			return err
		},
	}).Build()
}

func someExport() *mcsv1beta1.ServiceExport {
	export := &mcsv1beta1.ServiceExport{}
	export.Namespace, export.Name, export.UID, export.ResourceVersion = "default", "web", "u", "7"
	return export
}

func TestAStatusIsAppliedToTheVersionItWasComputedFrom(t *testing.T) {
	var sent map[string]any
	wanted := mcsv1beta1.ServiceExportStatus{Conditions: []metav1.Condition{condition.Valid(condition.ReasonValid, "m")}}
	written, err := reconciler{kind: "ServiceExport", client: answering(nil, &sent)}.write(t.Context(), someExport(), &wanted)
	if err != nil || !written {
		t.Fatalf("got %t, %v", written, err)
	}
	want := map[string]any{
		"apiVersion":  "multicluster.x-k8s.io/v1beta1",
		"kind":        "ServiceExport",
		"metadata":    map[string]any{"namespace": "default", "name": "web", "uid": "u", "resourceVersion": "7"},
		"subresource": "status",
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "Valid", "status": "True", "reason": "Valid", "message": "m", "lastTransitionTime": nil,
		}}},
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
}

func TestAnObjectThatMovedOnIsNoError(t *testing.T) {
	resource := schema.GroupResource{Group: mcsv1beta1.GroupName, Resource: "serviceexports"}
	broken := errors.New("the API server is on fire")
	cases := []struct {
		name   string
		answer error
		want   error
	}{
		{"changed meanwhile", apierrors.NewConflict(resource, "web", errors.New("newer")), nil},
		{"gone meanwhile", apierrors.NewNotFound(resource, "web"), nil},
		{"anything else is retried", broken, broken},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var sent map[string]any
			written, err := reconciler{kind: "ServiceExport", client: answering(c.answer, &sent)}.write(t.Context(), someExport(), &mcsv1beta1.ServiceExportStatus{})
			if written || !errors.Is(err, c.want) {
				t.Errorf("got %t, %v; want an error: %v, and nothing written", written, err, c.want)
			}
		})
	}
}
