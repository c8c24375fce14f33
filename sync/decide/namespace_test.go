// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

func TestTheMemberRecordKeepsRangesThatAreNotKnownYet(t *testing.T) {
	before := &exchangev1alpha1.MemberRecord{Spec: exchangev1alpha1.MemberRecordSpec{PodCIDRs: []string{"10.0.0.0/16"}}}
	known, local := exchangev1alpha1.MemberRecordSpec{ClusterID: "a", ClusterSet: "prod", Version: "v1", ClusterUID: "mine"}, model.LocalCluster{}
	want := exchangev1alpha1.MemberRecordSpec{
		ClusterID: "a", ClusterSet: "prod", Version: "v1", ClusterUID: "mine", PodCIDRs: []string{"10.0.0.0/16"},
	}
	if diff := cmp.Diff(want, Member("a", known, local, before).Spec); diff != "" {
		t.Errorf("while nothing is known (-want +got):\n%s", diff)
	}
	local.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("fd00::/112")}
	want.PodCIDRs, want.ServiceCIDRs = nil, []string{"fd00::/112"}
	if diff := cmp.Diff(want, Member("a", known, local, before).Spec); diff != "" {
		t.Errorf("once it is known (-want +got):\n%s", diff)
	}
	local.PodCIDRs = make([]netip.Prefix, 100)
	if got := Member("a", known, local, before).Spec.PodCIDRs; len(got) != maxCIDRs {
		t.Errorf("got %d ranges, which the API server would refuse", len(got))
	}
}

// FAULTS.md 24: a namespace that is deleted, or made late or again.
func TestTheStateOfANamespaceDecidesWhatIsPublishedOfIt(t *testing.T) {
	gone := metav1.Now()
	reserved := func(name string) string {
		return "NamespaceReserved: namespace " + name + " is reserved in cluster b; export from another one"
	}
	for name, tc := range map[string]struct {
		name      string
		namespace metav1.ObjectMeta
		missing   bool
		want      string
	}{
		"none":                       {name: "shop", missing: true, want: "NamespaceMissing: cluster b has no namespace shop; create it there"},
		"a user's":                   {name: "shop", namespace: metav1.ObjectMeta{Labels: map[string]string{"team": "x", "other": "y"}}},
		"one that is being deleted":  {name: "shop", namespace: metav1.ObjectMeta{DeletionTimestamp: &gone}, want: "NamespaceMissing: namespace shop of cluster b is being deleted; create it again there"},
		"Comity's own":               {name: "comity-system", want: reserved("comity-system")},
		"Comity's own, not read yet": {name: "comity-system", missing: true, want: reserved("comity-system")},
		"the cluster's own":          {name: "kube-system", want: reserved("kube-system")},
		"one of the exchange":        {name: "comity-a", namespace: metav1.ObjectMeta{Labels: map[string]string{model.LabelExchangeFrom: "a"}}, want: reserved("comity-a")},
	} {
		var namespace *corev1.Namespace
		if !tc.missing {
			namespace = &corev1.Namespace{ObjectMeta: tc.namespace}
		}
		got := Namespace("b", tc.name, namespace, "comity-system")
		if text := strings.TrimSuffix(got.Reason+": "+got.Message, ": "); got.Imported || text != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
		var want *exchangev1alpha1.NamespaceRecordSpec
		if tc.want == "" {
			want = &exchangev1alpha1.NamespaceRecordSpec{Labels: map[string]string{"team": "x"}}
		}
		var spec *exchangev1alpha1.NamespaceRecordSpec
		if record := NamespaceRecord("a", tc.name, namespace, "comity-system", []string{"team", "zone"}, nil); record != nil {
			spec = &record.Spec
		}
		if diff := cmp.Diff(want, spec); diff != "" {
			t.Errorf("%s: records (-want +got):\n%s", name, diff)
		}
	}
}

func TestOnlySelectedNamespacesArePublished(t *testing.T) {
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"shared": "true"}}}
	for text, want := range map[string]bool{"": true, "shared=true": true, "shared!=true": false, "other": false} {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := NamespaceRecord("a", "shop", shop, "comity-system", nil, selector); (got != nil) != want {
			t.Errorf("selector %q: got %+v, want a record: %t", text, got, want)
		}
	}
}
