// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

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
	return slices.DeleteFunc(slices.Clone(list), func(o T) bool { return o.GetName() == name })
}
