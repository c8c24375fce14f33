// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// world is an API server small enough to see through: server-side apply as a
// three-way merge, cluster IPs, UIDs and resource versions.
type world struct {
	objects map[string]plan.Object // kind namespace/name
	applied map[string]plan.Object // what comity applied last
	version int
	writes  []string
}

func newWorld() *world {
	return &world{objects: map[string]plan.Object{}, applied: map[string]plan.Object{}}
}

var errExists = errors.New("exists")

func refOf(o plan.Object) string {
	return fmt.Sprintf("%s %s/%s", o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName())
}

// put stores an object that a user, or another program, wrote.
func (w *world) put(o plan.Object) {
	w.version++
	o.SetResourceVersion(fmt.Sprint(w.version))
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", w.version)))
	}
	w.objects[refOf(o)] = o
}

// do makes one write, or says why a real API server would refuse it.
func (w *world) do(a plan.Action) error {
	ref := refOf(a.Object)
	current := w.objects[ref]
	w.writes = append(w.writes, a.Verb.String()+" "+ref)
	switch {
	case a.Verb == plan.Create && current != nil:
		return fmt.Errorf("%s: %w", ref, errExists)
	case a.Verb != plan.Create && (current == nil || a.UID == "" || current.GetUID() != a.UID):
		return fmt.Errorf("%s has not UID %q", ref, a.UID)
	case a.Verb == plan.Delete && current.GetResourceVersion() != a.ResourceVersion:
		return fmt.Errorf("%s is not at %q", ref, a.ResourceVersion)
	case a.Verb != plan.Create && !plan.Ours(current):
		return fmt.Errorf("%s is foreign", ref)
	}
	if a.Verb == plan.Delete {
		delete(w.objects, ref)
		delete(w.applied, ref)
		return nil
	}
	merged, err := apply(current, w.applied[ref], a.Object)
	if err != nil {
		return err
	}
	merged.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "comity", Operation: metav1.ManagedFieldsOperationApply}})
	if err := fillIn(merged, len(w.writes)); err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	w.applied[ref] = a.Object
	w.put(merged)
	return nil
}

// apply is server-side apply by one owner: what was applied and no longer is
// goes, what is applied is set, and the rest stays.
func apply(current, last, desired plan.Object) (plan.Object, error) {
	state, before, after := map[string]any{}, map[string]any{}, map[string]any{}
	for _, conversion := range []struct {
		from plan.Object
		into *map[string]any
	}{{current, &state}, {last, &before}, {desired, &after}} {
		if conversion.from == nil {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(conversion.from)
		if err != nil {
			return nil, err
		}
		*conversion.into = content
	}
	threeWay(state, before, after)
	merged, _ := reflect.New(reflect.TypeOf(desired).Elem()).Interface().(plan.Object)
	return merged, runtime.DefaultUnstructuredConverter.FromUnstructured(state, merged)
}

func threeWay(state, before, after map[string]any) {
	for key := range before {
		if _, still := after[key]; !still {
			delete(state, key)
		}
	}
	for key, value := range after {
		branch, isMap := value.(map[string]any)
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
		threeWay(into, old, branch)
	}
}

// fillIn does what the API server does to a Service.
func fillIn(o plan.Object, n int) error {
	s, is := o.(*corev1.Service)
	if !is {
		return nil
	}
	for _, p := range s.Spec.Ports {
		if p.Name == "" && len(s.Spec.Ports) > 1 {
			return fmt.Errorf("several ports, and one has no name")
		}
	}
	if s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP = fmt.Sprintf("10.0.%d.%d", n/250, n%250+1)
	}
	s.Spec.ClusterIPs, s.Spec.IPFamilies = []string{s.Spec.ClusterIP}, []corev1.IPFamily{corev1.IPv4Protocol}
	if *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol)
		if s.Spec.ClusterIP != corev1.ClusterIPNone {
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, fmt.Sprintf("fd00::%x", n))
		}
	}
	return nil
}

// current is what a loop would list for one key.
func (w *world) current(key types.NamespacedName) plan.Current {
	var c plan.Current
	for _, ref := range slices.Sorted(maps.Keys(w.objects)) {
		o := w.objects[ref]
		labeled := o.GetLabels()[model.LabelServiceName] == key.Name
		switch o := o.(type) {
		case *corev1.Service:
			if labeled || o.Name == model.DerivedName(key.Name) || o.Name == model.AlternateDerivedName(key.Name) {
				c.Services = append(c.Services, o.DeepCopy())
			}
		case *discoveryv1.EndpointSlice:
			if labeled {
				c.Slices = append(c.Slices, o.DeepCopy())
			}
		case *mcsv1beta1.ServiceImport:
			if o.Name == key.Name {
				c.Import = o.DeepCopy()
			}
		}
	}
	return c
}

// converge plans and applies until nothing is outstanding, and gives the last
// plan. Slices whose names turn out to be taken are shown to the next plan.
func (w *world) converge(in plan.ImportInput) (plan.ImportPlan, error) {
	met := map[string]bool{}
	for range 8 {
		in.Current = w.current(in.Key)
		for _, ref := range slices.Sorted(maps.Keys(met)) {
			if s, is := w.objects[ref].(*discoveryv1.EndpointSlice); is && s.Labels[model.LabelServiceName] != in.Key.Name {
				in.Current.Slices = append(in.Current.Slices, s.DeepCopy())
			}
		}
		p := plan.Import(in)
		if len(p.Actions) == 0 {
			return p, nil
		}
		for _, a := range p.Actions {
			err := w.do(a)
			if errors.Is(err, errExists) && !met[refOf(a.Object)] {
				met[refOf(a.Object)] = true
				break
			}
			if err != nil {
				return p, err
			}
		}
	}
	return plan.ImportPlan{}, fmt.Errorf("eight plans were not enough; writes:\n%s", strings.Join(w.writes, "\n"))
}

// snapshot copies the objects for which is holds, by reference.
func (w *world) snapshot(is func(plan.Object) bool) map[string]plan.Object {
	copies := map[string]plan.Object{}
	for ref, o := range w.objects {
		if is(o) {
			copies[ref], _ = o.DeepCopyObject().(plan.Object)
		}
	}
	return copies
}

// verbs shows actions in short.
func verbs(actions []plan.Action) []string {
	var shown []string
	for _, a := range actions {
		shown = append(shown, a.String())
	}
	return shown
}

func byPublisher(w *world) (records []*exchangev1alpha1.ExportRecord, copies []*discoveryv1.EndpointSlice) {
	for _, ref := range slices.Sorted(maps.Keys(w.objects)) {
		switch o := w.objects[ref].(type) {
		case *exchangev1alpha1.ExportRecord:
			records = append(records, o.DeepCopy())
		case *discoveryv1.EndpointSlice:
			copies = append(copies, o.DeepCopy())
		}
	}
	return records, copies
}
