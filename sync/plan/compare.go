// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// comparison compares objects of one kind in the exchange.
type comparison[T Object] struct {
	kind      metav1.TypeMeta
	asDesired func(current, desired T) bool
	// drift is what is to be removed of an object before an apply.
	drift func(current, desired T) mergePatch
	own   bool // whatever managedFields say
}

// recordComparison compares records, which have nothing to compare but a spec.
func recordComparison[T Object](kind metav1.TypeMeta, own bool, spec func(T) any) comparison[T] {
	return comparison[T]{kind: kind, own: own, drift: restoredDrift[T], asDesired: func(current, desired T) bool {
		return metaIsAsDesired(current, desired) && equality.Semantic.DeepEqual(spec(current), spec(desired))
	}}
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
			plan.problems = append(plan.problems, notOurRecord(c.kind.Kind, at))
		case changesAddressType(existing, desired[at]):
			plan.apply = append(append(plan.apply, remove(existing, c.kind)...), create(desired[at]))
		default:
			plan.apply = append(plan.apply, updateOrAdopt(desired[at], existing, c.asDesired(existing, desired[at]), c.drift(existing, desired[at]))...)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(current), model.CompareKeys) {
		if _, wanted := desired[at]; !wanted && (c.own || model.IsManaged(current[at])) {
			plan.remove = append(plan.remove, remove(current[at], c.kind)...)
		}
	}
	return plan
}

// recordDrift is restoredDrift, and removes a confirmation that was followed.
func recordDrift(current, desired *exchangev1alpha1.ExportRecord) mergePatch {
	patch := restoredDrift(current, desired)
	if _, confirmed := current.Annotations[model.AnnotationConfirmLost]; confirmed && !current.Spec.Lost {
		if patch == nil {
			patch = mergePatch{}
		}
		patch["metadata"] = map[string]any{"annotations": map[string]any{model.AnnotationConfirmLost: nil}}
	}
	return patch
}

// restoredDrift makes the spec of a record that Comity did not apply, such as one that was
// restored without managedFields, the desired one in one write: an apply would leave the
// fields that it does not name.
func restoredDrift[T Object](current, desired T) mergePatch {
	if _, adopting := current.GetAnnotations()[model.AnnotationAdopting]; adopting || model.IsManaged(current) {
		return nil
	}
	before, after := specOf(current), specOf(desired)
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return mergePatch{"spec": difference(before, after)}
}

// specOf are the fields of the spec of an object, as in JSON.
func specOf(o Object) map[string]any {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // the type cannot be encoded, whatever its value: a programming error
	}
	spec, _ := fields["spec"].(map[string]any)
	return spec
}

// difference is the JSON merge patch that makes current equal desired.
func difference(current, desired map[string]any) map[string]any {
	patch := map[string]any{}
	maps.Copy(patch, desired)
	for key, was := range current {
		is, wanted := desired[key]
		before, isMap := was.(map[string]any)
		after, stays := is.(map[string]any)
		switch {
		case !wanted:
			patch[key] = nil
		case isMap && stays:
			patch[key] = difference(before, after)
		}
	}
	return patch
}

// changesAddressType reports whether a desired slice has another address type than
// the existing slice of its name. The API server does not allow that change.
func changesAddressType(existing, desired any) bool {
	was, is := existing.(*discoveryv1.EndpointSlice)
	now, _ := desired.(*discoveryv1.EndpointSlice)
	return is && was.AddressType != now.AddressType
}
