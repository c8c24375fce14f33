// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestFamilies(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	type list = []corev1.IPFamily
	for _, c := range []struct {
		name                        string
		wanted, supported, existing list
		want                        list
		policy                      corev1.IPFamilyPolicy
		loses                       bool
	}{
		{"both, in the import's order", list{v6, v4}, list{v4, v6}, nil, list{v6, v4}, "PreferDualStack", false},
		{"only what the cluster has", list{v6, v4}, list{v4}, nil, list{v4}, "SingleStack", false},
		{"only what the import has", list{v6}, list{v4, v6}, nil, list{v6}, "SingleStack", false},
		{"none in common", list{v6}, list{v4}, nil, list{}, "SingleStack", false},
		{"the cluster's are not known", list{v6, v4}, nil, nil, nil, "PreferDualStack", false},
		{"the import's are not known", nil, list{v4, v6}, nil, nil, "SingleStack", false},
		{"a second family is added behind the first", list{v6, v4}, list{v4, v6}, list{v4}, list{v4, v6}, "PreferDualStack", false},
		{"the order of an existing Service stays", list{v6, v4}, list{v4, v6}, list{v4, v6}, list{v4, v6}, "PreferDualStack", false},
		{"the second family goes", list{v4}, list{v4, v6}, list{v4, v6}, list{v4}, "SingleStack", false},
		{"the first family goes", list{v6}, list{v4, v6}, list{v4, v6}, list{v6}, "SingleStack", true},
		{"another family", list{v6}, list{v4, v6}, list{v4}, list{v6}, "SingleStack", true},
	} {
		got := supportedFamilies(c.wanted, c.supported, c.existing)
		if !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if p := familyPolicy(got, c.wanted); p != c.policy {
			t.Errorf("%s: policy %s, want %s", c.name, p, c.policy)
		}
		if loses := losesFirstFamily(c.existing, got); loses != c.loses {
			t.Errorf("%s: loses %t, want %t", c.name, loses, c.loses)
		}
	}
}
