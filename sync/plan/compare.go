// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// compareAll compares the objects of this cluster in the exchange, in the order of their kinds and
// names, so that the same input always gives the same actions: slices are written before the
// records that name them, and removed after them. Of two desired objects with one name the last
// counts. own and the problems are those of Publish.
func compareAll(desired, current []Object, own bool) (actions []Action, problems []model.Problem) {
	want, existing := indexed(desired), indexed(current)
	var removed []Action
	for _, at := range slices.SortedFunc(maps.Keys(sets.KeySet(want).Union(sets.KeySet(existing))), objectID.compare) {
		is, wanted := want[at]
		was, exists := existing[at]
		isForeign := exists && !own && !model.IsManaged(was)
		if wanted {
			is.GetObjectKind().SetGroupVersionKind(at.kind().GroupVersionKind())
			if at.typ != sliceKind.Kind {
				is.SetLabels(labels.Merge(is.GetLabels(), labels.Set{labelManagedBy: model.ManagedBy}))
			}
			sign(is)
		}
		switch {
		case isForeign && wanted:
			problems = append(problems, model.Problemf(model.ReasonNameTaken, "",
				"%s %s was not created by Comity, so nothing is published under that name there; delete it", at.typ, at.NamespacedName))
		case isForeign:
		case !wanted:
			removed = slices.Concat(remove(was, *at.kind()), removed)
		case !exists:
			actions = append(actions, create(is))
		case changesAddressType(was, is):
			actions = append(append(actions, remove(was, *at.kind())...), create(is))
		default:
			actions = append(actions, update(is, was)...)
		}
	}
	return append(actions, removed...), problems
}

// objectID names an object in the exchange, by its Go type.
type objectID struct {
	typ string
	types.NamespacedName
}

func (id objectID) compare(other objectID) int {
	return cmp.Or(cmp.Compare(id.typ, other.typ), model.CompareKeys(id.NamespacedName, other.NamespacedName))
}

func (id objectID) kind() *metav1.TypeMeta {
	if id.typ == sliceKind.Kind {
		return &sliceKind
	}
	return &metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: id.typ}
}

func indexed(list []Object) map[objectID]Object {
	index := make(map[objectID]Object, len(list))
	for _, obj := range list {
		index[objectID{reflect.TypeOf(obj).Elem().Name(), keyOf(obj)}] = obj
	}
	return index
}

// update makes an object in the exchange equal to desired. Records have nothing to compare but a
// spec, which is one value to the API server: an apply replaces it, whoever wrote a part of it.
func update(desired, current Object) []Action {
	if slice, is := desired.(*discoveryv1.EndpointSlice); is {
		return updateSlice(slice, current.(*discoveryv1.EndpointSlice))
	}
	record, isExport := current.(*exchangev1alpha1.ExportRecord)
	if isExport {
		keepVersion(desired.(*exchangev1alpha1.ExportRecord), record.Spec)
	}
	spec := func(record Object) any { return reflect.ValueOf(record).Elem().FieldByName("Spec").Interface() }
	strip := mergePatch{}
	if _, confirmed := current.GetAnnotations()[model.AnnotationConfirmLost]; isExport && confirmed && !record.Spec.Lost { // it was followed
		strip["metadata"] = map[string]any{"annotations": map[string]any{model.AnnotationConfirmLost: nil}}
	}
	actions := updateOrAdopt(desired, current, equality.Semantic.DeepEqual(spec(current), spec(desired)), strip)
	if isExport && desired.(*exchangev1alpha1.ExportRecord).Spec.Withdrawn {
		// The withdrawal is built from the record that was read. If there is a newer one,
		// of an export that was created again, it would name the wrong ServiceExport.
		return asRead(current, actions)
	}
	return actions
}

// keepVersion keeps the version of the ServiceExport that the current record has, if
// nothing else would be written, so that a write to its status writes nothing here. One
// that is higher than that of the ServiceExport is from before a restore, and goes.
func keepVersion(desired *exchangev1alpha1.ExportRecord, current exchangev1alpha1.ExportRecordSpec) {
	same := desired.Spec
	if same.ExportVersion = current.ExportVersion; current.ExportVersion != "" && equality.Semantic.DeepEqual(same, current) &&
		!model.IsOlderVersion(desired.Spec.ExportVersion, current.ExportVersion) {
		desired.Spec = same
	}
}

// changesAddressType reports whether a desired slice has another address type than
// the existing slice of its name. The API server does not allow that change.
func changesAddressType(existing, desired any) bool {
	was, is := existing.(*discoveryv1.EndpointSlice)
	now, _ := desired.(*discoveryv1.EndpointSlice)
	return is && was.AddressType != now.AddressType
}

// How an object is compared. Server-side apply removes fields that Comity applied
// before and no longer applies, and leaves alone what others added. So an object
// is as desired if
//
//	it has every desired value                        (no user changed one), and
//	it has no field left that Comity applied before   (but no longer desires).
//
// Of a spec, what is not desired is removed, whoever applied it (see strayPatch). But a label
// that exists and is not desired may have been applied by Comity, or added by a user. So each
// applied object is signed: an annotation holds a digest of the names, not the values, of all
// labels and annotations that Comity applied.

// sign adds the digest of labels and annotations to obj.
func sign[T metav1.Object](obj T) T {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	names := fmt.Sprint(slices.Sorted(maps.Keys(obj.GetLabels())), slices.Sorted(maps.Keys(annotations)))
	annotations[model.AnnotationApplied] = model.Hash(names, 8)
	obj.SetAnnotations(annotations)
	return obj
}

// covers reports whether current has all desired labels, or annotations, the digest among them.
func covers(current, desired map[string]string) bool {
	for key, value := range desired {
		if found, has := current[key]; !has || found != value {
			return false
		}
	}
	return true
}

// updateSlice compares endpoints in their order. A derived slice has the
// order of its source, so another order means that the source changed.
func updateSlice(desired, current *discoveryv1.EndpointSlice) []Action {
	hasAll := current.AddressType == desired.AddressType &&
		equality.Semantic.DeepEqual(current.Ports, desired.Ports) &&
		equality.Semantic.DeepEqual(current.Endpoints, desired.Endpoints)
	return updateOrAdopt(desired, current, hasAll, strayPatch(current, desired, nil))
}

// What others added to an object of Comity's, and an apply would not remove.
// Server-side apply sets the fields that Comity applies and leaves alone those
// that it never applied. It replaces a changed selector, but an added port or
// external IP stays, and takes traffic where no export sent it. So an object is
// compared with the desired one, and a JSON merge patch removes such fields.
// Labels and annotations of users stay, except labels by which kube-proxy and
// DNS read an object.

// mergePatch is a JSON merge patch: null removes.
type mergePatch map[string]any

// strayPatch is the patch that removes labels, and fields of the spec; empty if there is
// nothing to remove. All else in a slice are lists that an apply replaces as a whole.
func strayPatch(current, desired metav1.Object, spec map[string]any) mergePatch {
	labels := map[string]any{}
	for key := range current.GetLabels() {
		if _, wanted := desired.GetLabels()[key]; !wanted && isRead(key) {
			labels[key] = nil
		}
	}
	p := mergePatch{}
	if len(spec) > 0 {
		p["spec"] = spec
	}
	if len(labels) > 0 {
		p["metadata"] = map[string]any{"labels": labels}
	}
	return p
}

// isRead reports whether kube-proxy, CoreDNS or the MCS API give a label a
// meaning on a Service or a slice.
func isRead(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return key == discoveryv1.LabelServiceName || domain == "multicluster.kubernetes.io" || domain == "service.kubernetes.io"
}
