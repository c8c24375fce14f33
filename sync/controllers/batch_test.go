// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

func TestOneReconcileWritesSomeSlicesOfEachCluster(t *testing.T) {
	slicesOf := func(id model.ClusterID, n int) (out []plan.Action) {
		for i := range n {
			out = append(out, plan.Action{Verb: plan.Create, Source: id, Object: &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", id, i)}}})
		}
		return out
	}
	service := plan.Action{Verb: plan.Create, Object: &corev1.Service{}}
	last := plan.Action{Verb: plan.Delete, Object: &corev1.Service{}, AfterAll: true}
	for name, c := range map[string]struct {
		slices [][]plan.Action
		want   string // how many of whom, in order
		later  int
	}{
		"few":                                   {[][]plan.Action{slicesOf("b", 2), slicesOf("c", 1)}, "service 1, c 1, b 2, last 1", 0},
		"as many as are written at once":        {[][]plan.Action{slicesOf("b", maxBatch)}, "service 1, b 20, last 1", 0},
		"more of one":                           {[][]plan.Action{slicesOf("b", maxBatch+5), slicesOf("c", 3)}, "service 1, c 3, b 20", 5},
		"more of this cluster, which waits not": {[][]plan.Action{slicesOf("a", maxBatch+5)}, "service 1, a 25, last 1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			actions := []plan.Action{service}
			for _, of := range c.slices {
				actions = append(actions, of...)
			}
			now, later := batch("a", append(actions, last))
			var got []string
			before, n := "", 0
			end := func() {
				if n > 0 {
					got = append(got, fmt.Sprintf("%s %d", before, n))
				}
			}
			for _, a := range now {
				of := string(a.Source)
				switch {
				case a.AfterAll:
					of = "last"
				case of == "":
					of = "service"
				}
				if of != before {
					end()
					before, n = of, 0
				}
				n++
			}
			end()
			if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" || len(later) != c.later {
				t.Errorf("%d later (-want +got):\n%s", len(later), diff)
			}
		})
	}
}
