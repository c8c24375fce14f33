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

// sliceIsAsDesired compares endpoints exactly, in their order: the source's
// order is kept, so another order is a change of the source.
func sliceIsAsDesired(current, desired *discoveryv1.EndpointSlice) bool {
	return metaIsAsDesired(current, desired) &&
		current.AddressType == desired.AddressType &&
		equality.Semantic.DeepEqual(current.Ports, desired.Ports) &&
		equality.Semantic.DeepEqual(current.Endpoints, desired.Endpoints)
}
