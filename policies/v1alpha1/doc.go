// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the ExportPolicy API, policy.comity.dev/v1alpha1.
//
// An ExportPolicy is one Rego module with its parameters, how strictly it is
// enforced and which exports it applies to. The types hold no behaviour.
//
// +kubebuilder:object:generate=true
// +groupName=policy.comity.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "policy.comity.dev", Version: "v1alpha1"}

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ExportPolicy{}, &ExportPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
