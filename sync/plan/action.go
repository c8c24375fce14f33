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
	// Delete deletes the object with Action.UID at Action.ResourceVersion only.
	Delete
)

// String is "create", "update" or "delete".
func (v Verb) String() string {
	switch v {
	case Create:
		return "create"
	case Update:
		return "update"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("Verb(%d)", int(v))
}

// Action is one outstanding write.
type Action struct {
	Verb Verb
	// Object is, for Create and Update, all that Comity owns of the object and
	// nothing else (no UID, no resourceVersion, empty status); for Delete, only
	// the type, namespace and name.
	Object Object
	// UID is a precondition: empty for Create, set otherwise.
	UID types.UID
	// ResourceVersion is a precondition of Delete; empty otherwise.
	ResourceVersion string
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

// Ours reports whether obj is provably Comity's own, and so may be changed and
// deleted. It is model.Ours, named here because every plan rests on it.
func Ours(obj metav1.Object) bool { return model.Ours(obj) }

func create(desired Object) Action { return Action{Verb: Create, Object: desired} }

func update(desired Object, current metav1.Object) Action {
	return Action{Verb: Update, Object: desired, UID: current.GetUID()}
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
