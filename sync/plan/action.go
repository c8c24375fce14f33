// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// Object is any Kubernetes object; its TypeMeta is always filled in here.
type Object interface {
	metav1.Object
	runtime.Object
}

// Verb is what an Action does to its object.
type Verb int

// The zero value is invalid, so that a forgotten field is noticed.
const (
	// Create applies an object that should not exist yet: server-side apply
	// without force, so that a foreign object that appeared meanwhile answers
	// with a conflict.
	Create Verb = iota + 1
	// Update applies an object that is Comity's own: server-side apply with
	// force, for the object with Action.UID only.
	Update
	// Adopt makes an object of the Sveltos pipeline Comity's own in place:
	// server-side apply with force, for the object with Action.UID only; then
	// what the former owner left goes, its field ownership included, so that
	// nothing of the object goes with what that owner removes later.
	Adopt
	// Delete deletes the object with Action.UID at Action.ResourceVersion only.
	Delete
)

// String is "create", "update", "adopt" or "delete".
func (v Verb) String() string {
	switch v {
	case Create:
		return "create"
	case Update:
		return "update"
	case Adopt:
		return "adopt"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("Verb(%d)", int(v))
}

// Action is one outstanding write.
type Action struct {
	Verb Verb
	// Object is, for all but Delete, all that Comity owns of the object and
	// nothing else (no UID, no resourceVersion, empty status); for Delete, only
	// the type, namespace and name.
	Object Object
	// UID is a precondition: empty for Create, set otherwise.
	UID types.UID
	// ResourceVersion is a precondition of Delete and of Strip.
	ResourceVersion string
	// Strip, of an Update or Adopt, is a JSON merge patch that is made before
	// the apply and takes off what an apply would leave; nil for none.
	Strip map[string]any
	// Release, of an Adopt, is a JSON merge patch of the metadata that is made
	// after the apply, together with dropping the field ownership of all others.
	Release map[string]any
}

// String names the verb and the object: "create Service default/derived-1".
func (a Action) String() string {
	return fmt.Sprintf("%s %s %s/%s", a.Verb, a.Object.GetObjectKind().GroupVersionKind().Kind,
		a.Object.GetNamespace(), a.Object.GetName())
}

// changes are the outstanding writes to objects of one kind, in order.
type changes struct {
	apply, remove []Action
	problems      []model.Problem
}

func create(desired Object) Action { return Action{Verb: Create, Object: desired} }

func update(desired Object, current metav1.Object) Action {
	return Action{Verb: Update, Object: desired, UID: current.GetUID()}
}

// correct is what an object that exists still needs to become desired: nothing
// if it is as desired and there is nothing to strip.
func correct(desired Object, current metav1.Object, asDesired bool, strip mergePatch) []Action {
	if _, adopting := current.GetAnnotations()[model.AnnotationAdopting]; adopting || !model.IsManaged(current) {
		return []Action{adopt(desired, current, strip)}
	}
	if asDesired && strip == nil {
		return nil
	}
	a := update(desired, current)
	if strip != nil {
		a.Strip, a.ResourceVersion = strip, current.GetResourceVersion()
	}
	return []Action{a}
}

// adopt applies desired with the mark of adopting, which Release takes off
// last: if Comity stops in between, the next plan goes on from there.
func adopt(desired Object, current metav1.Object, strip mergePatch) Action {
	marked, _ := desired.DeepCopyObject().(Object)
	annotations := marked.GetAnnotations()
	annotations[model.AnnotationAdopting] = "true"
	marked.SetAnnotations(annotations)
	return Action{
		Verb: Adopt, Object: marked, UID: current.GetUID(), ResourceVersion: current.GetResourceVersion(),
		Strip: strip, Release: releaseFromSveltos(current),
	}
}

// remove deletes obj, unless it is being deleted already.
func remove(obj metav1.Object, kind metav1.TypeMeta) []Action {
	if obj.GetDeletionTimestamp() != nil {
		return nil
	}
	return []Action{{
		Verb: Delete,
		Object: &metav1.PartialObjectMetadata{
			TypeMeta:   kind,
			ObjectMeta: metav1.ObjectMeta{Namespace: obj.GetNamespace(), Name: obj.GetName()},
		},
		UID:             obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(),
	}}
}
