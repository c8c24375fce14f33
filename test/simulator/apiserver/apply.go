// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// kinds are those that Comity applies.
var kinds = map[string]reflect.Type{
	"Service":         reflect.TypeFor[corev1.Service](),
	"EndpointSlice":   reflect.TypeFor[discoveryv1.EndpointSlice](),
	"ServiceImport":   reflect.TypeFor[mcsv1beta1.ServiceImport](),
	"ExportRecord":    reflect.TypeFor[exchangev1alpha1.ExportRecord](),
	"ImportRecord":    reflect.TypeFor[exchangev1alpha1.ImportRecord](),
	"NamespaceRecord": reflect.TypeFor[exchangev1alpha1.NamespaceRecord](),
	"MemberRecord":    reflect.TypeFor[exchangev1alpha1.MemberRecord](),
}

// precondition is what an apply asks of the object that is there.
type precondition struct{ uid, version string }

// apply is server-side apply by Comity with force, or without: then, as the
// agent always sends a version that no object has, it creates or conflicts.
func (s *Server) apply(actor string, ref Ref, desired map[string]any, want precondition) (client.Object, error) {
	before, exists, err := s.meets(ref, want)
	if err != nil {
		return nil, err
	}
	if !exists {
		if err := s.mayCreate(ref); err != nil {
			return nil, err
		}
	}
	state := map[string]any{}
	if exists {
		state = contentOf(before.object, ref.Kind)
	}
	keyPorts(desired, ref.Kind)
	order := portOrder(desired)
	if strings.HasSuffix(ref.Kind, "Record") { // of which the spec is one value
		delete(state, "spec")
	}
	merge(state, before.applied, desired)
	merged, err := objectOf(state, ref.Kind, order)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var managers []metav1.ManagedFieldsEntry
	if exists {
		managers = before.object.GetManagedFields()
	}
	ours := metav1.ManagedFieldsEntry{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply}
	if !model.IsManaged(&metav1.ObjectMeta{ManagedFields: managers}) {
		managers = append(slices.Clone(managers), ours)
	}
	merged.SetManagedFields(managers)
	if err := s.admit(merged, before.object); err != nil {
		return nil, err
	}
	if exists && same(merged, before.object) {
		s.objects[ref] = stored{before.object, desired} // an apply that changes nothing is no write
		return before.object, nil
	}
	s.store(actor, ref, merged, desired, false)
	return merged, nil
}

// meets gives the object that is there if it meets the precondition.
func (s *Server) meets(ref Ref, want precondition) (stored, bool, error) {
	before, exists := s.objects[ref]
	switch {
	case !exists && want.uid != "":
		return before, exists, apierrors.NewConflict(resource(ref), ref.Name, fmt.Errorf("uid mismatch: no such object"))
	case exists && want.uid != "" && want.uid != string(before.object.GetUID()):
		return before, exists, apierrors.NewConflict(resource(ref), ref.Name, fmt.Errorf("uid mismatch: %s", before.object.GetUID()))
	case exists && want.version != "" && want.version != before.object.GetResourceVersion():
		return before, exists, apierrors.NewConflict(resource(ref), ref.Name, fmt.Errorf("the object has been modified"))
	}
	return before, exists, nil
}

// patch is a JSON merge patch of an object that exists. What it changes is not
// Comity's by an apply any more.
func (s *Server) patch(actor string, ref Ref, change map[string]any, want precondition) (client.Object, error) {
	before, exists, err := s.meets(ref, want)
	if err == nil && !exists {
		err = apierrors.NewNotFound(resource(ref), ref.Name)
	}
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before.object)
	if err != nil {
		return nil, err
	}
	mergePatch(content, change)
	patched, err := objectOf(content, ref.Kind, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := s.admit(patched, before.object); err != nil {
		return nil, err
	}
	s.store(actor, ref, patched, disown(before.applied, contentOf(patched, ref.Kind)), false)
	return patched, nil
}

// replace is an update of an object that exists. What it changes is not Comity's by an
// apply any more.
func (s *Server) replace(actor string, ref Ref, o client.Object) (client.Object, error) {
	before, exists, err := s.meets(ref, precondition{uid: string(o.GetUID()), version: o.GetResourceVersion()})
	if err == nil && !exists {
		err = apierrors.NewNotFound(resource(ref), ref.Name)
	}
	if err != nil {
		return nil, err
	}
	after, _ := o.DeepCopyObject().(client.Object)
	after.SetManagedFields(before.object.GetManagedFields())
	if err := s.admit(after, before.object); err != nil {
		return nil, err
	}
	if same(after, before.object) {
		return before.object, nil
	}
	s.store(actor, ref, after, disown(before.applied, contentOf(after, ref.Kind)), false)
	return after, nil
}

func mergePatch(content, change map[string]any) {
	for key, value := range change {
		inside, isMap := value.(map[string]any)
		into, hasMap := content[key].(map[string]any)
		switch {
		case value == nil:
			delete(content, key)
		case isMap && hasMap:
			mergePatch(into, inside)
		default:
			content[key] = value
		}
	}
}

// same compares all but what every write changes.
func same(a, b client.Object) bool {
	a, _ = a.DeepCopyObject().(client.Object)
	a.SetResourceVersion(b.GetResourceVersion())
	return reflect.DeepEqual(a, b)
}

// contentOf is an object as maps and lists, Service ports by what makes them
// one, as the API keeps them.
func contentOf(o client.Object, kind string) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(fmt.Sprintf("%T: %v", o, err)) // a type that Kubernetes itself converts
	}
	keyPorts(content, kind)
	portOrder(content)
	return content
}

func objectOf(content map[string]any, kind string, order []string) (client.Object, error) {
	if spec, is := content["spec"].(map[string]any); is {
		if keyed, is := spec["ports"].(map[string]any); is {
			for _, key := range slices.Sorted(maps.Keys(keyed)) {
				if !slices.Contains(order, key) {
					order = append(order, key)
				}
			}
			ports := []any{}
			for _, key := range order {
				if port, has := keyed[key]; has {
					ports = append(ports, port)
				}
			}
			spec["ports"] = ports
		}
	}
	o, is := reflect.New(kinds[kind]).Interface().(client.Object)
	if !is {
		return nil, fmt.Errorf("%s is not known here", kind)
	}
	return o, runtime.DefaultUnstructuredConverter.FromUnstructured(content, o)
}

func keyPorts(content map[string]any, kind string) {
	spec, _ := content["spec"].(map[string]any)
	ports, is := spec["ports"].([]any)
	if kind != "Service" || !is {
		return
	}
	keyed := map[string]any{}
	for i, p := range ports {
		port, _ := p.(map[string]any)
		keyed[fmt.Sprint(port["port"], "/", port["protocol"])] = port
		port["\x00"] = int64(i) // where it stood; gone before it is stored
	}
	spec["ports"] = keyed
}

// portOrder takes the marks of keyPorts off and gives the order that they hold.
func portOrder(content map[string]any) []string {
	spec, _ := content["spec"].(map[string]any)
	keyed, is := spec["ports"].(map[string]any)
	if !is {
		return nil
	}
	at := map[string]int64{}
	for key, p := range keyed {
		port, _ := p.(map[string]any)
		at[key], _ = port["\x00"].(int64)
		delete(port, "\x00")
	}
	return slices.SortedFunc(maps.Keys(at), func(a, b string) int { return int(at[a] - at[b]) })
}

// merge sets what is desired, removes what was applied before and is not
// desired, and leaves alone what is others'.
func merge(state, before, desired map[string]any) {
	for key, value := range before {
		if _, still := desired[key]; still {
			continue
		}
		inside, isMap := value.(map[string]any)
		into, hasMap := state[key].(map[string]any)
		if isMap && hasMap {
			merge(into, inside, nil)
			if len(into) > 0 {
				continue
			}
		}
		delete(state, key)
	}
	for key, value := range desired {
		inside, isMap := value.(map[string]any)
		if !isMap {
			state[key] = value
			continue
		}
		old, _ := before[key].(map[string]any)
		into, has := state[key].(map[string]any)
		if !has {
			into = map[string]any{}
			state[key] = into
		}
		merge(into, old, inside)
	}
}

// disown is what Comity still owns after somebody else wrote state.
func disown(applied, state map[string]any) map[string]any {
	left := map[string]any{}
	for key, value := range applied {
		found, has := state[key]
		inside, isMap := value.(map[string]any)
		there, alsoMap := found.(map[string]any)
		switch {
		case !has:
		case isMap && alsoMap:
			left[key] = disown(inside, there)
		case !isMap && reflect.DeepEqual(found, value):
			left[key] = value
		}
	}
	return left
}
