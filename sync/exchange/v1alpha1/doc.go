// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the records that members publish in their exchange
// namespaces, exchange.comity.dev/v1alpha1.
//
// A record contains what its publisher chose to share. It does not identify the
// publisher: a reader identifies the cluster by the credential with which it read
// the record. The types hold no behaviour.
//
// +kubebuilder:object:generate=true
// +groupName=exchange.comity.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "exchange.comity.dev", Version: "v1alpha1"}

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ExportRecord{}, &ExportRecordList{},
		&ImportRecord{}, &ImportRecordList{},
		&NamespaceRecord{}, &NamespaceRecordList{},
		&MemberRecord{}, &MemberRecordList{},
		&Peer{}, &PeerList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
