// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

func TestTheScopeIsWhatAllAllow(t *testing.T) {
	members := []model.Member{{ID: "b", Labels: map[string]string{"region": "eu"}}, {ID: "c", Labels: map[string]string{"region": "eu"}}, {ID: "d"}}
	for name, tc := range map[string]struct {
		list, selector, namespace string // "": no annotation
		want                      string
		says                      []string // of the error
	}{
		"nothing said":                         {want: "every cluster"},
		"a list":                               {list: "b,d", want: "b,d"},
		"a selector":                           {selector: "region=eu", want: "b,c"},
		"a list and a selector":                {list: "b,d", selector: "region=eu", want: "b"},
		"a selector and a Namespace":           {selector: "region=eu", namespace: "c,d", want: "c"},
		"all three":                            {list: "b,c", selector: "region=eu", namespace: "c", want: "c"},
		"a selector that cannot be read":       {selector: "a=b=c", says: []string{"ServiceExport shop/web", "comity.dev/export-to-selector", "exported nowhere"}},
		"a selector that selects nobody":       {selector: "region=mars", says: []string{"ServiceExport shop/web", "comity.dev/export-to-selector", "none of the members"}},
		"a list and a selector that part":      {list: "d", selector: "region=eu", says: []string{"export-to-selector: allows b,c of the members", "allow d"}},
		"a selector beside a list that is bad": {list: "b,,c", selector: "region=eu", says: []string{"comity.dev/export-to:", "exported nowhere"}},
		"a Namespace that cannot be read":      {namespace: "b,,c", says: []string{"Namespace shop, annotation comity.dev/export-to:", "exported nowhere"}},
		"a list and a Namespace that part":     {list: "b,c", namespace: "d", says: []string{"Namespace shop, annotation comity.dev/export-to: allows d", "allow b,c"}},
		"a Namespace that parts from both":     {selector: "region=eu", namespace: "d", says: []string{"ServiceExport shop/web, annotation comity.dev/export-to-selector: allows b,c", "allow d"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(pairs ...string) map[string]string {
				out := map[string]string{}
				for n := 0; n < len(pairs); n += 2 {
					if pairs[n+1] != "" {
						out[pairs[n]] = pairs[n+1]
					}
				}
				return out
			}
			export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Annotations: set(model.AnnotationExportTo, tc.list, model.AnnotationExportToSelector, tc.selector)}}
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: set(model.AnnotationExportTo, tc.namespace)}}
			scope, err := model.EffectiveScope(types.NamespacedName{Namespace: "shop", Name: "web"}, export, namespace, members)
			if (err != nil) != (len(tc.says) > 0) || err == nil && scope.String() != tc.want || err != nil && !scope.Empty() {
				t.Fatalf("got %s and error %v, want %s", scope, err, tc.want)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want it to say %q", err, part)
				}
			}
		})
	}
}
