// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
	// crash stops an Adopt after its apply.
	crash bool
	// own lets a plan delete what Comity did not apply: everything is in exchange namespaces.
	own bool
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
	w.writes = append(w.writes, string(a.Verb)+" "+ref)
	switch {
	case a.Verb == plan.Create && current != nil:
		return fmt.Errorf("%s: %w", ref, errExists)
	case a.Verb != plan.Create && (current == nil || a.UID == "" || current.GetUID() != a.UID):
		return fmt.Errorf("%s has not UID %q", ref, a.UID)
	case a.Verb == plan.Delete && current.GetResourceVersion() != a.ResourceVersion:
		return fmt.Errorf("%s is not at %q", ref, a.ResourceVersion)
	case a.Strip != nil && current.GetResourceVersion() != a.ResourceVersion:
		return fmt.Errorf("%s is not at %q", ref, a.ResourceVersion)
	case a.Verb != plan.Create && a.Verb != plan.Adopt && !model.IsManaged(current) && (!w.own || a.Verb != plan.Delete):
		return fmt.Errorf("%s is foreign", ref)
	}
	if a.Verb == plan.Delete {
		delete(w.objects, ref)
		delete(w.applied, ref)
		return nil
	}
	if a.Strip != nil {
		stripped, err := mergePatch(current, a.Strip)
		if err != nil {
			return err
		}
		w.put(stripped)
		current = stripped
	}
	if a.Verb == plan.Annotate {
		return nil
	}
	if err := w.apply(ref, current, a.Object); err != nil {
		return err
	}
	if err := sameIfReplaced(a, w.objects[ref]); err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	if a.Verb != plan.Adopt || w.crash {
		return nil
	}
	released, err := mergePatch(w.objects[ref], a.Release)
	if err != nil {
		return err
	}
	w.put(released)
	return nil
}

// mergePatch is RFC 7386 on an object.
func mergePatch(current plan.Object, patch map[string]any) (plan.Object, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	plain := map[string]any{}
	if err := json.Unmarshal(data, &plain); err != nil {
		return nil, err
	}
	state, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	if err != nil {
		return nil, err
	}
	merge7386(state, plain)
	patched, _ := reflect.New(reflect.TypeOf(current).Elem()).Interface().(plan.Object)
	return patched, runtime.DefaultUnstructuredConverter.FromUnstructured(state, patched)
}

func merge7386(state, patch map[string]any) {
	for key, value := range patch {
		branch, isMap := value.(map[string]any)
		into, has := state[key].(map[string]any)
		switch {
		case value == nil:
			delete(state, key)
		case isMap && has:
			merge7386(into, branch)
		default:
			state[key] = integers(value)
		}
	}
}

// integers undoes what decoding JSON does to whole numbers.
func integers(value any) any {
	switch v := value.(type) {
	case float64:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key])
		}
	}
	return value
}

// sameIfReplaced reports how a slice would differ from one that was applied if what was read
// of it was replaced; it must not. Nobody changes anything in this world between plan and write.
func sameIfReplaced(a plan.Action, applied plan.Object) error {
	if a.Read == nil {
		return nil
	}
	replaced, got, desired := a.Read.DeepCopy(), applied.DeepCopyObject().(*discoveryv1.EndpointSlice), a.Object.(*discoveryv1.EndpointSlice)
	replaced.Endpoints, replaced.Ports = desired.Endpoints, desired.Ports
	for _, s := range []*discoveryv1.EndpointSlice{replaced, got} {
		s.TypeMeta, s.ResourceVersion, s.ManagedFields = metav1.TypeMeta{}, "", nil
	}
	if diff := cmp.Diff(got, replaced, cmpopts.EquateEmpty()); diff != "" {
		return fmt.Errorf("(-applied +replaced):\n%s", diff)
	}
	return nil
}

// apply stores what server-side apply makes of an object.
func (w *world) apply(ref string, current, desired plan.Object) error {
	merged, err := apply(current, w.applied[ref], desired)
	if err != nil {
		return err
	}
	merged.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "comity", Operation: metav1.ManagedFieldsOperationApply}})
	if err := fillIn(merged, current, len(w.writes)); err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	w.applied[ref] = desired
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
	if strings.HasSuffix(desired.GetObjectKind().GroupVersionKind().Kind, "Record") { // of which the spec is one value
		delete(state, "spec")
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
		if !isMap || key == "selector" { // a map that is one value to the API server
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

// fillIn does what the API server does to a Service, and refuses what it would.
func fillIn(o, before plan.Object, n int) error {
	s, is := o.(*corev1.Service)
	if !is {
		return nil
	}
	names := map[string]bool{}
	for _, p := range s.Spec.Ports {
		if p.Name == "" && len(s.Spec.Ports) > 1 || names[p.Name] {
			return fmt.Errorf("several ports, and one has no name of its own")
		}
		names[p.Name] = true
	}
	if s.Spec.SessionAffinity == corev1.ServiceAffinityNone && s.Spec.SessionAffinityConfig != nil {
		return fmt.Errorf("a config without affinity")
	}
	if s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP = fmt.Sprintf("10.0.%d.%d", n/250, n%250+1)
	}
	single := *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	old, had := before.(*corev1.Service)
	had = had && old != nil
	if len(s.Spec.IPFamilies) == 0 && had && s.Spec.ClusterIP != corev1.ClusterIPNone {
		s.Spec.IPFamilies = slices.Clone(old.Spec.IPFamilies) // told from the cluster IPs
	}
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if single {
		s.Spec.IPFamilies = s.Spec.IPFamilies[:1]
	} else if len(s.Spec.IPFamilies) == 1 {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, map[corev1.IPFamily]corev1.IPFamily{"IPv4": "IPv6", "IPv6": "IPv4"}[s.Spec.IPFamilies[0]])
	}
	if had && s.Spec.ClusterIP != corev1.ClusterIPNone && old.Spec.IPFamilies[0] != s.Spec.IPFamilies[0] {
		return fmt.Errorf("the first IP family may not change")
	}
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	if len(s.Spec.IPFamilies) > 1 && s.Spec.ClusterIP != corev1.ClusterIPNone {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, fmt.Sprintf("fd00::%x", n))
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

// sees is in with what exists, and with what package decide makes of that and of what was
// read: the list, and what stands if that is frozen.
func (w *world) sees(in plan.ImportInput) plan.ImportInput {
	in.Current = w.current(in.Key)
	in.List = model.List{Formed: time.Unix(1000, 0).UTC()}
	stored := plan.StoredList(in.Current, in.Key)
	if in.Desired != nil {
		for _, c := range in.Desired.Constituents {
			e, has := stored.Find(c.Cluster)
			if !has || e.UID != c.UID {
				e = model.Entry{SourceExport: model.SourceExport{Cluster: c.Cluster, UID: c.UID, CreatedAt: c.CreatedAt}}
			}
			in.List.Entries = append(in.List.Entries, e)
		}
	}
	for _, s := range in.Current.Slices {
		id := model.ClusterID(s.Labels[model.LabelSourceCluster])
		if from := plan.AdoptableFrom(s, in.Key); in.Takeover && from != "" {
			id = from
		} else if !model.IsManaged(s) {
			continue
		}
		if _, has := stored.Find(id); in.Unsynced.Has(id) && !stored.Exists() && !has {
			stored.Entries = append(stored.Entries, model.Entry{SourceExport: model.SourceExport{Cluster: id}})
		}
	}
	place := 0
	for _, e := range stored.Entries {
		_, isRead := in.List.Find(e.Cluster)
		if !isRead && in.Unsynced.Has(e.Cluster) {
			in.List.Entries = slices.Insert(in.List.Entries, min(place, len(in.List.Entries)), e)
			isRead = true
		}
		if isRead {
			place++
		}
	}
	if len(in.List.Entries) > 0 && in.Unsynced.Has(in.List.Entries[0].Cluster) {
		in.Desired, in.Frozen = plan.Standing(in.Current, in.Key, in.Desired), true
	}
	return in
}

// converge plans and applies until nothing is outstanding, and gives the last
// plan. Slices whose names turn out to be taken are shown to the next plan.
func (w *world) converge(in plan.ImportInput) (plan.ImportPlan, error) {
	met := map[string]bool{}
	for range 8 {
		in := w.sees(in)
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

// reports are the ImportRecords that stand in the exchange.
func (w *world) reports() []*exchangev1alpha1.ImportRecord {
	var list []*exchangev1alpha1.ImportRecord
	for _, ref := range slices.Sorted(maps.Keys(w.objects)) {
		if r, is := w.objects[ref].(*exchangev1alpha1.ImportRecord); is {
			list = append(list, r.DeepCopy())
		}
	}
	return list
}

func (w *world) doAll(t *testing.T, actions []plan.Action) {
	t.Helper()
	for _, a := range actions {
		if err := w.do(a); err != nil {
			t.Fatal(err)
		}
	}
}
