// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

func ranges(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// policy is one with a spec in YAML.
func policy(t *testing.T, spec string) (p networkingv1.NetworkPolicy) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhichPoliciesAdmitAnAddressOfAnotherCluster(t *testing.T) {
	for _, test := range []struct {
		name, spec string
		want       bool
	}{
		{"no rule", "{}", false},
		{"a rule for everybody", "ingress: [{}]", true},
		{"a rule for everybody at a port", "ingress: [{ports: [{port: 80}]}]", true},
		{"every namespace, which is none of another cluster", "ingress: [{from: [{namespaceSelector: {}}]}]", false},
		{"the range", "ingress: [{from: [{ipBlock: {cidr: 10.2.0.0/16}}]}]", true},
		{"a part of it", "ingress: [{from: [{ipBlock: {cidr: 10.2.3.0/24}}]}]", true},
		{"everything", "ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]", true},
		{"everything except private ranges", "ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]", false},
		{"everything except a part of the range", "ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.2.9.0/24]}}]}]", true},
		{"another range", "ingress: [{from: [{ipBlock: {cidr: 10.3.0.0/16}}]}]", false},
		{"the range in the second rule", "ingress: [{from: [{podSelector: {}}]}, {from: [{podSelector: {}}, {ipBlock: {cidr: 10.2.0.0/16}}]}]", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := admits([]networkingv1.NetworkPolicy{policy(t, test.spec)}, ranges("10.2.0.0/16")); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestWhichPoliciesLimitWhoConnects(t *testing.T) {
	for spec, want := range map[string]int{
		"podSelector: {}":                                                          1,
		"podSelector: {matchLabels: {app: web}}":                                   1,
		"podSelector: {matchLabels: {app: db}}":                                    0,
		"{podSelector: {}, policyTypes: [Egress]}":                                 0,
		"{podSelector: {}, policyTypes: [Egress, Ingress]}":                        1,
		"podSelector: {matchExpressions: [{key: app, operator: In, values: [a]}]}": 0,
	} {
		if got := selecting([]networkingv1.NetworkPolicy{policy(t, spec)}, map[string]string{"app": "web", "tier": "x"}); len(got) != want {
			t.Errorf("%s: %d", spec, len(got))
		}
	}
}

func TestImportersAreThePeersInScope(t *testing.T) {
	peer := func(id string, removed bool) v1alpha1.Peer {
		return v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{"region": id + "-1"}}, Spec: v1alpha1.PeerSpec{Removed: removed, AcceptedCIDRs: []string{"10.9.0.0/16"}}}
	}
	peers := []v1alpha1.Peer{peer("b", false), peer("c", false), peer("d", true)}
	for _, test := range []struct {
		annotations map[string]string
		limit       string
		want        []string
	}{
		{nil, "", []string{"b 10.9.0.0/16", "c 10.9.0.0/16"}},
		{map[string]string{model.AnnotationExportTo: "b"}, "", []string{"b 10.9.0.0/16"}},
		{map[string]string{model.AnnotationExportToSelector: "region=c-1"}, "", []string{"c 10.9.0.0/16"}},
		{nil, "c", []string{"c 10.9.0.0/16"}},
		{map[string]string{model.AnnotationExportTo: "d"}, "", nil},
	} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		if test.limit != "" {
			namespace.Annotations = map[string]string{model.AnnotationExportTo: test.limit}
		}
		found, err := importers(&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: test.annotations}}, namespace, peers)
		var got []string
		for _, i := range found {
			got = append(got, string(i.id)+" "+i.String())
		}
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%v: %v (-want +got)\n%s", test.annotations, err, diff)
		}
	}
}

func TestThePolicyAdmitsTheTargetPorts(t *testing.T) {
	service := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{
		{Port: 80, TargetPort: intstr.FromString("http"), Protocol: corev1.ProtocolTCP}, {Port: 53, TargetPort: intstr.FromInt32(53), Protocol: corev1.ProtocolUDP},
	}}}
	got := build(service, []importer{{id: "b", pods: ranges("10.2.0.0/16", "fd00:2::/48")}, {id: "c", pods: ranges("10.3.0.0/16")}})
	want := policy(t, `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress]
ingress:
- from: [{ipBlock: {cidr: 10.2.0.0/16}}, {ipBlock: {cidr: "fd00:2::/48"}}, {ipBlock: {cidr: 10.3.0.0/16}}]
  ports: [{protocol: TCP, port: http}, {protocol: UDP, port: 53}]
`)
	if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !admits([]networkingv1.NetworkPolicy{*got}, ranges("10.3.0.0/16")) {
		t.Error("it does not admit what it is for")
	}
}
