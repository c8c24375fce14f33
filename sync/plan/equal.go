// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// How an object is compared. Server-side apply removes fields that Comity applied
// before and no longer applies, and leaves alone what others added. So an object
// is as desired if
//
//	it has every desired value                        (no user changed one), and
//	it has no field left that Comity applied before   (but no longer desires).
//
// The object does not show the second: a label that exists and is not desired
// may have been applied by Comity, or added by a user. So each applied object is
// signed: an annotation holds a digest of the names, not the values, of all
// fields that Comity applied and may later not apply.

// sign adds the digest of names, labels and annotations to obj.
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

// sliceHasAll compares endpoints in their order. A derived slice has the
// order of its source, so another order means that the source changed.
func sliceHasAll(current, desired *discoveryv1.EndpointSlice) bool {
	return current.AddressType == desired.AddressType &&
		equality.Semantic.DeepEqual(current.Ports, desired.Ports) &&
		equality.Semantic.DeepEqual(current.Endpoints, desired.Endpoints)
}
