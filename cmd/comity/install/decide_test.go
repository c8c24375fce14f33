// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// stored is a definition that serves v1beta1 with a status.
func stored(change ...func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	out := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "serviceexports.multicluster.x-k8s.io", ResourceVersion: "1", Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{served("v1alpha1", true), served("v1beta1", true)}},
	}
	for _, f := range change {
		f(out)
	}
	return out
}

func served(name string, status bool) apiextensionsv1.CustomResourceDefinitionVersion {
	v := apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true}
	if status {
		v.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	}
	return v
}

func appliedBy(version string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(c *apiextensionsv1.CustomResourceDefinition) {
		c.Labels[labelManagedBy], c.Annotations[annotationVersion] = fieldOwner, version
	}
}

func versions(v ...apiextensionsv1.CustomResourceDefinitionVersion) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions = v }
}

func managedBy(manager string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(c *apiextensionsv1.CustomResourceDefinition) {
		c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-apiserver", Subresource: "status"}, {Manager: manager, Operation: metav1.ManagedFieldsOperationApply}}
	}
}

func TestDecide(t *testing.T) {
	none := &apiextensionsv1.CustomResourceDefinition{}
	mcs, own := definition{mcs: true}, definition{}
	for _, tc := range []struct {
		name       string
		definition definition
		current    *apiextensionsv1.CustomResourceDefinition
		// leave and refuse are parts of the answer; neither: apply.
		leave, refuse []string
	}{
		{"none of the MCS API is applied", mcs, none, nil, nil},
		{"none of our own is applied", own, none, nil, nil},
		{"ours is applied again", mcs, stored(appliedBy("v1.0.0")), nil, nil},
		{"ours is applied again although it lost its label", mcs, stored(managedBy(fieldOwner)), nil, nil},
		{"a newer one of the MCS API is left", mcs, stored(appliedBy("v1.3.0")), []string{"left alone", "v1.3.0", "v1.2.0"}, nil},
		{"a newer one of our own is left", own, stored(appliedBy("v1.3.0")), []string{"left alone", "v1.3.0", "v1.2.0"}, nil},
		{"one of our own that kubectl applied is adopted", own, stored(managedBy("kubectl")), nil, nil},
		{"one of our own that is too old is adopted", own, stored(managedBy("kubectl"), versions(served("v1beta1", false))), nil, nil},
		{"another implementation's is left", mcs, stored(managedBy("cilium-operator")), []string{"left alone (belongs to field owner cilium-operator)"}, nil},
		{"another implementation's may serve v1beta1 alone", mcs, stored(managedBy("x"), versions(served("v1beta1", true))), []string{"left alone"}, nil},
		{"a Helm release's is left", mcs, stored(func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Annotations["meta.helm.sh/release-name"], c.Annotations["meta.helm.sh/release-namespace"] = "mcs", "networking"
		}), []string{"belongs to Helm release networking/mcs"}, nil},
		{"another implementation's without v1beta1 is refused", mcs, stored(managedBy("lighthouse"), versions(served("v1alpha1", true))), nil,
			[]string{"serviceexports.multicluster.x-k8s.io is too old", "serves v1alpha1;", "expected v1beta1", "field owner lighthouse", "upgrade"}},
		{"another implementation's without a status is refused", mcs, stored(managedBy("x"), versions(served("v1alpha1", true), served("v1beta1", false))), nil,
			[]string{"serves v1alpha1, v1beta1 without the status subresource", "expected v1beta1 with the status subresource"}},
		{"another implementation's that does not serve v1beta1 any more is refused", mcs, stored(managedBy("x"), versions(apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1beta1"})), nil,
			[]string{"serves no version"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.definition.current = tc.current
			leave, err := tc.definition.decide("v1.2.0")
			if (leave != "") != (tc.leave != nil) || (err != nil) != (tc.refuse != nil) {
				t.Fatalf("got %q and error %v", leave, err)
			}
			for _, part := range tc.leave {
				if !strings.Contains(leave, part) {
					t.Errorf("got %q, want it to say %q", leave, part)
				}
			}
			for _, part := range tc.refuse {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want it to say %q", err, part)
				}
			}
		})
	}
}

func TestOnlyReleasesHaveAnOrder(t *testing.T) {
	for _, tc := range []struct {
		installed, ours string
		want            bool
	}{
		{"v1.3.0", "v1.2.0", true},
		{"v1.2.0", "v1.2.0", false},
		{"v1.2.0", "v1.10.0", false},
		{"v1.2.0", "v1.2.0-rc.1", true},
		{"v1.2.0-rc.2", "v1.2.0-rc.10", false},
		{"1.3.0", "v1.2.0", true},
		{"", "v1.2.0", false},
		{"dev", "v1.2.0", false},
		{"v1.3.0", "dev", false},
		{"v1.3.0", "3a5f1c2", false},
		{"v1.3.0", "v1.2.0-14-g3a5f1c2", false},
		{"v1.3.0-14-g3a5f1c2-dirty", "v1.2.0", false},
		{"v1.3.0", "v1.2.0-dirty", false},
	} {
		if got := newer(tc.installed, tc.ours); got != tc.want {
			t.Errorf("installed %q is newer than %q: got %v, want %v", tc.installed, tc.ours, got, tc.want)
		}
	}
}

func TestEveryDefinitionIsEmbeddedWithItsVersion(t *testing.T) {
	definitions := embedded(CRDOptions{Version: "v1.2.0", MCS: true})
	names := map[string]bool{}
	for _, d := range definitions {
		names[d.GetName()] = true
		if d.GetAnnotations()[annotationVersion] != "v1.2.0" {
			t.Errorf("%s does not say which version applied it: %v", d.GetName(), d.GetAnnotations())
		}
		if d.mcs != strings.HasSuffix(d.GetName(), ".multicluster.x-k8s.io") {
			t.Errorf("%s: of the MCS API: %v", d.GetName(), d.mcs)
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(d.Object, "status"); found {
			t.Errorf("%s brings a status", d.GetName())
		}
	}
	for _, want := range []string{
		"serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io", "exportpolicies.policy.comity.dev",
		"exportrecords.exchange.comity.dev", "importrecords.exchange.comity.dev", "memberrecords.exchange.comity.dev", "namespacerecords.exchange.comity.dev",
		"peers.exchange.comity.dev",
	} {
		if !names[want] {
			t.Errorf("%s is not installed", want)
		}
	}
}
