// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// Object is any Kubernetes object. Its TypeMeta is always set in this package.
type Object interface {
	metav1.Object
	runtime.Object
}

// Verb is what an Action does to its object.
type Verb string

// The zero value is invalid, so that a forgotten field is noticed.
const (
	// Create applies an object that should not exist yet: server-side apply
	// without force, which fails with a conflict if a foreign object was created
	// meanwhile.
	Create Verb = "create"
	// Update applies an object that is Comity's own: server-side apply with
	// force, for the object with Action.UID only. See Action.Read.
	Update Verb = "update"
	// Adopt takes over an object of the Sveltos pipeline in place: server-side
	// apply with force, for the object with Action.UID only. Then the labels,
	// annotations and field ownership of the pipeline are removed, so that
	// nothing is deleted from the object when the pipeline is removed.
	Adopt Verb = "adopt"
	// Delete deletes the object with Action.UID at Action.ResourceVersion only.
	Delete Verb = "delete"
	// Annotate sets annotations of an object that is Comity's own, and changes nothing
	// else: Action.Strip, as a JSON merge patch of the object with Action.UID at
	// Action.ResourceVersion only.
	Annotate Verb = "annotate"
)

// Action is one outstanding write.
type Action struct {
	Verb Verb
	// Object has, for all verbs but Delete, exactly the fields that Comity owns
	// (no UID, no resourceVersion, empty status); for Delete, only the kind, the
	// namespace and the name.
	Object Object
	// UID is a precondition: empty for Create, set otherwise.
	UID types.UID
	// ResourceVersion is a precondition of Delete and of Strip, and of an Update or Adopt
	// without Strip unless it is empty.
	ResourceVersion string
	// Strip, of an Update or Adopt, is a JSON merge patch to be made before the
	// apply. It removes what the apply would leave; nil for none.
	Strip map[string]any
	// Read, of an Update, is the slice as it was read if nothing but its endpoints or
	// ports differs from Object. While it has not changed, it is replaced with these:
	// that costs the API server up to a third less than an apply, which has to find
	// out what else is to change. Nil for any other action.
	Read *discoveryv1.EndpointSlice
	// Release, of an Adopt, is a JSON merge patch of the metadata to be made
	// after the apply, together with the removal of all other field owners.
	Release map[string]any
	// Source, of an action on a derived slice, is the cluster that the endpoints
	// come from. If the API server refuses the action, those after it are made all
	// the same, because none depends on it. It is empty for an action on which the
	// later ones depend: all of them or, of an update, all but those that update a slice.
	Source model.ClusterID
	// AfterAll is true of an action that is made only if none before it was refused.
	AfterAll bool
}

// String returns the verb and the object: "create Service default/derived-1".
func (a Action) String() string {
	return fmt.Sprintf("%s %s %s/%s", a.Verb, a.Object.GetObjectKind().GroupVersionKind().Kind,
		a.Object.GetNamespace(), a.Object.GetName())
}

// each changes all of the actions, and returns them.
func each(actions []Action, change func(*Action)) []Action {
	for i := range actions {
		change(&actions[i])
	}
	return actions
}

// asRead makes actions depend on the version of the object that was read: what they write
// follows from it, and a newer version may say something else.
func asRead(current metav1.Object, actions []Action) []Action {
	return each(actions, func(a *Action) { a.ResourceVersion = current.GetResourceVersion() })
}

// changes are the outstanding writes to objects of one kind, in the order in
// which they are to be made.
type changes struct {
	apply, remove []Action
	problems      []model.Problem
}

func create(desired Object) Action { return Action{Verb: Create, Object: desired} }

// updateOrAdopt returns the action that makes an existing object equal to
// desired; none if it has all desired values, and there is nothing to strip.
func updateOrAdopt(desired Object, current metav1.Object, hasAll bool, strip mergePatch) []Action {
	if len(strip) == 0 {
		strip = nil
	}
	if _, adopting := current.GetAnnotations()[model.AnnotationAdopting]; adopting || !model.IsManaged(current) {
		return []Action{adopt(desired, current, strip)}
	}
	sameMeta := covers(current.GetLabels(), desired.GetLabels()) && covers(current.GetAnnotations(), desired.GetAnnotations())
	if hasAll && sameMeta && strip == nil {
		return nil
	}
	a := Action{Verb: Update, Object: desired, UID: current.GetUID()}
	if strip != nil {
		a.Strip, a.ResourceVersion = strip, current.GetResourceVersion()
	} else if slice, is := current.(*discoveryv1.EndpointSlice); is && sameMeta {
		a.Read = slice
	}
	return []Action{a}
}

// adopt applies desired with the annotation model.AnnotationAdopting, which
// Release removes last. If Comity stops in between, the next plan finds the
// annotation and adopts the object again.
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

// remove deletes obj, unless it is already being deleted.
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

// Current is what exists of an import, whoever created it.
type Current struct {
	// Services are those of the namespace that are called
	// model.DerivedName(name) or model.AlternateDerivedName(name) and those
	// labeled model.LabelServiceName=name, in any order, each once.
	Services []*corev1.Service
	// Import is the ServiceImport called name; nil if there is none.
	Import *mcsv1beta1.ServiceImport
	// Slices are those of the namespace labeled model.LabelServiceName=name,
	// and any other that has the name of one that an earlier plan created: a user may
	// have removed the label from one of ours, or given the name to another object.
	Slices []*discoveryv1.EndpointSlice
}

// ImportAnnotations are those of the ServiceImport; nil of one that Comity does not manage.
func (c Current) ImportAnnotations() map[string]string {
	if c.Import == nil || !model.IsManaged(c.Import) {
		return nil
	}
	return c.Import.Annotations
}

// After returns what exists once the actions done were made. Applied are the
// objects that the API server returned for them; a deletion returns none. A cache
// shows the same only some milliseconds later. The lists of c stay unchanged.
func (c Current) After(done []Action, applied []Object) Current {
	for _, action := range done {
		if action.Verb != Delete {
			continue
		}
		// The object of a deletion has its kind, but not its Go type.
		name := action.Object.GetName()
		switch action.Object.GetObjectKind().GroupVersionKind().Kind {
		case serviceKind.Kind:
			c.Services = without(c.Services, name)
		case sliceKind.Kind:
			c.Slices = without(c.Slices, name)
		case importKind.Kind:
			c.Import = nil
		}
	}
	for _, object := range applied {
		switch o := object.(type) {
		case *corev1.Service:
			c.Services = append(without(c.Services, o.Name), o)
		case *discoveryv1.EndpointSlice:
			c.Slices = append(without(c.Slices, o.Name), o)
		case *mcsv1beta1.ServiceImport:
			c.Import = o
		}
	}
	return c
}

// without returns a copy of list without the object called name.
func without[T metav1.Object](list []T, name string) []T {
	return model.Without(list, func(o T) bool { return o.GetName() == name })
}
