// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/decide"
)

// What the API server has of one export, and how many requests that takes.
func TestWhatTheAPIServerHasOfAnExport(t *testing.T) {
	key, since := types.NamespacedName{Namespace: "shop", Name: "web"}, metav1.NewTime(time.Unix(100, 0))
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: exportDefinitionName, CreationTimestamp: since}}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u"}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	terminating := func(o client.Object) client.Object {
		o, _ = o.DeepCopyObject().(client.Object)
		o.SetDeletionTimestamp(&since)
		o.SetFinalizers([]string{"example.com/waits"})
		return o
	}
	gone, both := decide.LocalExport{Key: key}, decide.LocalExport{Key: key, Export: export, Service: service}
	alone := decide.LocalExport{Key: key, Export: export}
	unserved := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, key.Name, "404 page not found", 0, true)
	for _, tc := range []struct {
		name     string
		local    decide.LocalExport
		has      []client.Object
		fails    error
		want     decide.Live
		requests int
	}{
		{"it has it", both, []client.Object{definition, export}, nil, decide.Live{Export: "u"}, 1},
		{"it has it and its Service", alone, []client.Object{definition, export, service}, nil, decide.Live{Export: "u", HasService: true}, 2},
		{"it has it without its Service", alone, []client.Object{definition, export}, nil, decide.Live{Export: "u"}, 2},
		{"its Service is terminating", alone, []client.Object{definition, export, terminating(service)}, nil, decide.Live{Export: "u"}, 2},
		{"it does not have it", gone, []client.Object{definition}, nil, decide.Live{Defined: since.Time}, 3},
		{"it is terminating", gone, []client.Object{definition, terminating(export)}, nil, decide.Live{Defined: since.Time}, 3},
		{"no definition", gone, nil, nil, decide.Live{Undefined: "does not exist"}, 2},
		{"the definition is terminating", gone, []client.Object{terminating(definition)}, nil, decide.Live{Undefined: "is being deleted"}, 2},
		{"it does not answer", gone, []client.Object{definition}, errors.New("down"), decide.Live{Problem: "down"}, 1},
		{"the definition is not served", gone, []client.Object{definition}, unserved, decide.Live{Problem: "ServiceExport shop/web cannot be read"}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, mcsv1beta1.Install, corev1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			requests := 0
			reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.has...).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					requests++
					if _, bounded := ctx.Deadline(); !bounded {
						t.Error("a request is not bounded in time")
					}
					if tc.fails != nil {
						return tc.fails
					}
					return c.Get(ctx, key, o, opts...)
				},
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					requests++
					return c.List(ctx, list, opts...)
				},
			}).Build()
			clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
			r := &base{apiReader: reader, Options: Options{Clock: clock, Retry: 10 * time.Second}}
			got := r.readLive(t.Context(), tc.local)
			if !got.Read || got.Export != tc.want.Export || got.HasService != tc.want.HasService || !got.Defined.Equal(tc.want.Defined) ||
				!contains(got.Undefined, tc.want.Undefined) || !contains(got.Problem, tc.want.Problem) || requests != tc.requests {
				t.Errorf("%d requests: %+v; want %d: %+v", requests, got, tc.requests, tc.want)
			}
			// That the definition is missing is used again for a moment.
			if r.readLive(t.Context(), tc.local); tc.want.Undefined != "" && requests != tc.requests {
				t.Errorf("%d requests for the next export", requests)
			}
			clock.SetTime(clock.Now().Add(r.Retry))
			if r.readLive(t.Context(), tc.local); requests < 2*tc.requests {
				t.Errorf("%d requests after %s", requests, r.Retry)
			}
		})
	}
}

// contains is also false for a text where none is wanted.
func contains(text, want string) bool {
	return strings.Contains(text, want) && (text == "") == (want == "")
}
