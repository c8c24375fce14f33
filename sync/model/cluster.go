// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ClusterID names a member of the clusterset: one RFC 1123 label, at most 63
// characters (KEP-2149; CoreDNS serves no id with a dot in it). The zero value
// is no cluster.
type ClusterID string

// ParseClusterID checks s and returns it as a ClusterID. The error says what is
// wrong with s and what a cluster id looks like; it does not say where s came
// from, which is the caller's to add.
func ParseClusterID(s string) (ClusterID, error) {
	if s == "" {
		return "", fmt.Errorf("a cluster id is empty; expected one RFC 1123 label such as \"cluster-1\"")
	}
	if problems := validation.IsDNS1123Label(s); len(problems) > 0 {
		return "", fmt.Errorf("cluster id %q is not one RFC 1123 label (lower-case letters, digits and '-', at most 63 characters, no dot): %s",
			s, strings.Join(problems, "; "))
	}
	return ClusterID(s), nil
}

// NamespacePresence says what is known of a namespace in another cluster.
type NamespacePresence int

// The zero value is invalid, so that a forgotten field is noticed.
const (
	// NamespaceUnknown: the cluster has not been read since this process started,
	// or what it says of the namespace is not valid.
	NamespaceUnknown NamespacePresence = iota + 1
	// NamespacePresent: the cluster publishes a record of the namespace.
	NamespacePresent
	// NamespaceAbsent: the cluster was read and publishes no such record.
	NamespaceAbsent
)

// MemberNamespace is one namespace as one peer publishes it.
type MemberNamespace struct {
	Cluster  ClusterID
	Presence NamespacePresence
	// Labels are the identity labels, by which namespace sameness is checked.
	Labels map[string]string
}
