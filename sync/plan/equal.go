// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// How an object is compared. Server-side apply removes what Comity applied
// before and no longer applies, and leaves alone what others added. So an
// object is as desired if
//
//	everything that is desired is there        (drift: a user's edit), and
//	nothing that was applied before is left    (what is no longer desired).
//
// The second cannot be seen from the object: a label that is there and not
// desired may be ours from yesterday or a user's. Therefore each applied object
// is signed with a digest of the names, not the values, of all that Comity
// applied to it and that the API server would keep apart by name.

// sign adds the digest of names, and of those of the labels and annotations.
func sign[T metav1.Object](obj T, names []string) T {
	all := slices.Clone(names)
	for key := range obj.GetLabels() {
		all = append(all, "label "+key)
	}
	annotations := obj.GetAnnotations()
	for key := range annotations {
		all = append(all, "annotation "+key)
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[model.AnnotationApplied] = hex.EncodeToString(sum[:8])
	obj.SetAnnotations(annotations)
	return obj
}

// serviceFields are the names of what may come and go in a derived Service.
func serviceFields(s *corev1.Service) []string {
	var names []string
	for _, port := range s.Spec.Ports { // a map by port and protocol to the API server
		names = append(names, fmt.Sprintf("port %d/%s", port.Port, port.Protocol))
		if port.AppProtocol != nil {
			names = append(names, fmt.Sprintf("appProtocol of %d/%s", port.Port, port.Protocol))
		}
	}
	// ipFamilies are not among them: where they are not applied, the API server
	// keeps those that are there.
	return append(names, optional(map[string]bool{
		"selector":              len(s.Spec.Selector) > 0,
		"sessionAffinityConfig": s.Spec.SessionAffinityConfig != nil,
		"internalTrafficPolicy": s.Spec.InternalTrafficPolicy != nil,
		"trafficDistribution":   s.Spec.TrafficDistribution != nil,
	})...)
}

// importFields are the names of what may come and go in a ServiceImport.
func importFields(s *mcsv1beta1.ServiceImport) []string {
	return optional(map[string]bool{
		"ips":                   len(s.Spec.IPs) > 0,
		"ipFamilies":            len(s.Spec.IPFamilies) > 0,
		"sessionAffinity":       s.Spec.SessionAffinity != "",
		"sessionAffinityConfig": s.Spec.SessionAffinityConfig != nil,
		"internalTrafficPolicy": s.Spec.InternalTrafficPolicy != nil,
		"trafficDistribution":   s.Spec.TrafficDistribution != nil,
	})
}

func optional(set map[string]bool) []string {
	maps.DeleteFunc(set, func(_ string, is bool) bool { return !is })
	return slices.Collect(maps.Keys(set))
}

// metaIsAsDesired reports whether current has all desired labels and
// annotations, the digest among them.
func metaIsAsDesired(current, desired metav1.Object) bool {
	return covers(current.GetLabels(), desired.GetLabels()) && covers(current.GetAnnotations(), desired.GetAnnotations())
}

func covers(current, desired map[string]string) bool {
	for key, value := range desired {
		if found, has := current[key]; !has || found != value {
			return false
		}
	}
	return true
}

// serviceIsAsDesired ignores what the API server and others fill in.
func serviceIsAsDesired(current, desired *corev1.Service) bool {
	if !metaIsAsDesired(current, desired) {
		return false
	}
	for _, want := range desired.Spec.Ports {
		if !slices.ContainsFunc(current.Spec.Ports, func(port corev1.ServicePort) bool {
			port.NodePort = 0
			return equality.Semantic.DeepEqual(port, want)
		}) {
			return false
		}
	}
	c, d := current.Spec, desired.Spec
	return c.Type == d.Type &&
		(d.ClusterIP == "" || c.ClusterIP == d.ClusterIP) &&
		(len(d.IPFamilies) == 0 || slices.Equal(c.IPFamilies, d.IPFamilies)) &&
		maps.Equal(c.Selector, d.Selector) &&
		c.SessionAffinity == d.SessionAffinity &&
		same(c.IPFamilyPolicy, d.IPFamilyPolicy) &&
		same(c.SessionAffinityConfig, d.SessionAffinityConfig) &&
		same(c.InternalTrafficPolicy, d.InternalTrafficPolicy) &&
		same(c.TrafficDistribution, d.TrafficDistribution)
}

func importIsAsDesired(current, desired *mcsv1beta1.ServiceImport) bool {
	c, d := current.Spec, desired.Spec
	return metaIsAsDesired(current, desired) &&
		c.Type == d.Type &&
		equality.Semantic.DeepEqual(c.Ports, d.Ports) &&
		(len(d.IPs) == 0 || slices.Equal(c.IPs, d.IPs)) &&
		(len(d.IPFamilies) == 0 || slices.Equal(c.IPFamilies, d.IPFamilies)) &&
		(d.SessionAffinity == "" || c.SessionAffinity == d.SessionAffinity) &&
		same(c.SessionAffinityConfig, d.SessionAffinityConfig) &&
		same(c.InternalTrafficPolicy, d.InternalTrafficPolicy) &&
		same(c.TrafficDistribution, d.TrafficDistribution)
}

// sliceIsAsDesired compares endpoints exactly, in their order: the source's
// order is kept, so another order is a change of the source.
func sliceIsAsDesired(current, desired *discoveryv1.EndpointSlice) bool {
	return metaIsAsDesired(current, desired) &&
		current.AddressType == desired.AddressType &&
		equality.Semantic.DeepEqual(current.Ports, desired.Ports) &&
		equality.Semantic.DeepEqual(current.Endpoints, desired.Endpoints)
}

// same reports whether an optional field is as desired. If it is not desired,
// whatever is there is somebody else's.
func same[T any](current, desired *T) bool {
	return desired == nil || equality.Semantic.DeepEqual(current, desired)
}
