// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"

	"github.com/comity-mcs/comity/sync/model"
)

// comparison compares objects of one kind in the exchange.
type comparison[T Object] struct {
	kind metav1.TypeMeta
	// hasAll reports whether an object has all that is desired beside its metadata.
	hasAll func(current, desired T) bool
	// drift is what is to be removed of an object before an apply.
	drift func(current, desired T) mergePatch
	own   bool // whatever managedFields say
}

// recordComparison compares records, which have nothing to compare but a spec. That of a
// record that Comity did not apply, such as one that was restored without managedFields, is
// made the desired one in one write: an apply would leave the fields that it does not name.
func recordComparison[T Object](kind metav1.TypeMeta, own bool, spec func(T) any) comparison[T] {
	return comparison[T]{
		kind: kind, own: own,
		hasAll: func(current, desired T) bool { return equality.Semantic.DeepEqual(spec(current), spec(desired)) },
		drift: func(current, desired T) mergePatch {
			if _, adopting := current.GetAnnotations()[model.AnnotationAdopting]; adopting || model.IsManaged(current) {
				return nil
			}
			return difference(mergePatch{"spec": spec(current)}, mergePatch{"spec": spec(desired)})
		},
	}
}

// difference is the patch that makes current equal desired; nil if it is.
func difference(current, desired mergePatch) mergePatch {
	was, _ := json.Marshal(current) // the spec of a record holds nothing that JSON cannot express
	is, _ := json.Marshal(desired)
	var out mergePatch
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(was, is, was)
	if err = errors.Join(err, json.Unmarshal(patch, &out)); err != nil {
		panic(err) // neither is an object: a programming error
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// all compares in the order of the names, so that the same input always gives the same
// actions.
func (c comparison[T]) all(desired, current map[types.NamespacedName]T) changes {
	var plan changes
	for _, at := range slices.SortedFunc(maps.Keys(desired), model.CompareKeys) {
		existing, exists := current[at]
		switch {
		case !exists:
			plan.apply = append(plan.apply, create(desired[at]))
		case !c.own && !model.IsManaged(existing):
			plan.problems = append(plan.problems, model.Problem{Reason: model.ReasonNameTaken, Message: fmt.Sprintf(
				"%s %s was not created by Comity, so nothing is published under that name there; delete it", c.kind.Kind, at)})
		case changesAddressType(existing, desired[at]):
			plan.apply = append(append(plan.apply, remove(existing, c.kind)...), create(desired[at]))
		default:
			plan.apply = append(plan.apply, updateOrAdopt(desired[at], existing, c.hasAll(existing, desired[at]), c.drift(existing, desired[at]))...)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(current), model.CompareKeys) {
		if _, wanted := desired[at]; !wanted && (c.own || model.IsManaged(current[at])) {
			plan.remove = append(plan.remove, remove(current[at], c.kind)...)
		}
	}
	return plan
}

// changesAddressType reports whether a desired slice has another address type than
// the existing slice of its name. The API server does not allow that change.
func changesAddressType(existing, desired any) bool {
	was, is := existing.(*discoveryv1.EndpointSlice)
	now, _ := desired.(*discoveryv1.EndpointSlice)
	return is && was.AddressType != now.AddressType
}
