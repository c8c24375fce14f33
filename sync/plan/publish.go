// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// PublishInput is everything that decides what is published for one local
// ServiceExport. Nothing in it is changed.
type PublishInput struct {
	// Key is the namespace and name of the ServiceExport.
	Key types.NamespacedName
	// Record is what is to be published (exchange.Record); nil to withdraw.
	Record *exchangev1alpha1.ExportRecordSpec
	// Slices are the copies to publish (exchange.CopySlice); their namespace is
	// ignored. If Record is nil, they are not read.
	Slices []*discoveryv1.EndpointSlice
	// Audience are the exchange namespaces to publish in, in any order.
	Audience []string
	// CurrentRecords and CurrentSlices are those of this export in all exchange
	// namespaces: records called model.RecordName(key), slices labeled
	// model.LabelExportNamespace and model.LabelExportName.
	CurrentRecords []*exchangev1alpha1.ExportRecord
	CurrentSlices  []*discoveryv1.EndpointSlice
}

// PublishPlan is what is outstanding in the exchange for one export.
type PublishPlan struct {
	// Actions are to be made in this order: slices, then records, so that a
	// reader of a record finds the slices; then the deletions, records first.
	Actions []Action
	// Problems name foreign objects that have the names of objects to publish. If
	// there is one, the export is not completely published.
	Problems []model.Problem
}

var (
	recordKind    = recordMeta("ExportRecord")
	reportKind    = recordMeta("ImportRecord")
	namespaceKind = recordMeta("NamespaceRecord")
	memberKind    = recordMeta("MemberRecord")
)

func recordMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: kind}
}

func keyOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Publish plans the records and slices of one export. If its audience changes, it
// is added to the new namespaces before it is removed from the old ones, so that
// a reader of both always finds it.
func Publish(in PublishInput) PublishPlan {
	wantSlices, wantRecords := in.desired()
	copies := compareAll(wantSlices, indexed(in.CurrentSlices), sliceKind, sliceIsAsDesired)
	records := compareAll(wantRecords, indexed(in.CurrentRecords), recordKind, recordIsAsDesired)
	return PublishPlan{
		Actions:  slices.Concat(copies.apply, records.apply, records.remove, copies.remove),
		Problems: append(copies.problems, records.problems...),
	}
}

// desired returns the slices and records to publish.
func (in PublishInput) desired() (map[types.NamespacedName]*discoveryv1.EndpointSlice, map[types.NamespacedName]*exchangev1alpha1.ExportRecord) {
	copies := map[types.NamespacedName]*discoveryv1.EndpointSlice{}
	records := map[types.NamespacedName]*exchangev1alpha1.ExportRecord{}
	if in.Record == nil {
		return copies, records
	}
	for _, exchange := range in.Audience {
		for _, source := range in.Slices {
			s := &discoveryv1.EndpointSlice{
				TypeMeta:    sliceKind,
				ObjectMeta:  exchangeMeta(exchange, source.Name, source.Labels, source.Annotations),
				AddressType: source.AddressType, Endpoints: source.Endpoints, Ports: source.Ports,
			}
			copies[keyOf(s)] = sign(s, nil)
		}
		r := &exchangev1alpha1.ExportRecord{
			TypeMeta:   recordKind,
			ObjectMeta: exchangeMeta(exchange, model.RecordName(in.Key.Namespace, in.Key.Name), recordLabels(in.Key), nil),
			Spec:       *in.Record,
		}
		records[keyOf(r)] = sign(r, nil)
	}
	return copies, records
}

// Namespaces plans the NamespaceRecords in one exchange namespace. desired has the
// identity labels (possibly none) of every namespace to publish, by name; current
// are the records that exist there.
func Namespaces(exchange string, desired map[string]map[string]string, current []*exchangev1alpha1.NamespaceRecord) []Action {
	want := map[types.NamespacedName]*exchangev1alpha1.NamespaceRecord{}
	for name, identity := range desired {
		r := &exchangev1alpha1.NamespaceRecord{
			TypeMeta:   namespaceKind,
			ObjectMeta: exchangeMeta(exchange, name, map[string]string{labelManagedBy: model.ManagedBy}, nil),
			Spec:       exchangev1alpha1.NamespaceRecordSpec{Labels: identity},
		}
		want[keyOf(r)] = sign(r, nil)
	}
	plan := compareAll(want, indexed(current), namespaceKind, func(c, d *exchangev1alpha1.NamespaceRecord) bool {
		return metaIsAsDesired(c, d) && equality.Semantic.DeepEqual(c.Spec, d.Spec)
	})
	return slices.Concat(plan.apply, plan.remove)
}

// Member plans the MemberRecord of this cluster in one exchange namespace.
// current is the record called desired.ClusterID; nil if there is none.
func Member(exchange string, desired exchangev1alpha1.MemberRecordSpec, current *exchangev1alpha1.MemberRecord) []Action {
	want := &exchangev1alpha1.MemberRecord{
		TypeMeta:   memberKind,
		ObjectMeta: exchangeMeta(exchange, desired.ClusterID, map[string]string{labelManagedBy: model.ManagedBy}, nil),
		Spec:       desired,
	}
	sign(want, nil)
	switch {
	case current == nil:
		return []Action{create(want)}
	case !model.IsManaged(current) || metaIsAsDesired(current, want) && equality.Semantic.DeepEqual(current.Spec, want.Spec):
		return nil
	}
	return []Action{update(want, current)}
}

// Reports plans the ImportRecords about the exports of one namespace/name.
// desired has the records to publish, by exchange namespace; current are the
// records of that name in all exchange namespaces. An existing record keeps its
// Since as long as the same export is imported, or is not imported for the same
// reason.
func Reports(key types.NamespacedName, desired map[string]exchangev1alpha1.ImportRecordSpec, current []*exchangev1alpha1.ImportRecord) PublishPlan {
	existing := indexed(current)
	want := map[types.NamespacedName]*exchangev1alpha1.ImportRecord{}
	for exchange, spec := range desired {
		r := &exchangev1alpha1.ImportRecord{
			TypeMeta:   reportKind,
			ObjectMeta: exchangeMeta(exchange, model.RecordName(key.Namespace, key.Name), recordLabels(key), nil),
			Spec:       spec,
		}
		if old, has := existing[keyOf(r)]; has && model.IsManaged(old) && sameResult(old.Spec, spec) {
			r.Spec.Since = old.Spec.Since
		}
		want[keyOf(r)] = sign(r, nil)
	}
	plan := compareAll(want, existing, reportKind, func(c, d *exchangev1alpha1.ImportRecord) bool {
		return metaIsAsDesired(c, d) && equality.Semantic.DeepEqual(c.Spec, d.Spec)
	})
	return PublishPlan{Actions: slices.Concat(plan.apply, plan.remove), Problems: plan.problems}
}

// sameResult reports whether two records have the same result for the same export.
func sameResult(before, now exchangev1alpha1.ImportRecordSpec) bool {
	return before.ExportUID == now.ExportUID && before.Imported == now.Imported && before.Reason == now.Reason
}

func recordIsAsDesired(current, desired *exchangev1alpha1.ExportRecord) bool {
	return metaIsAsDesired(current, desired) && equality.Semantic.DeepEqual(current.Spec, desired.Spec)
}

func recordLabels(export types.NamespacedName) map[string]string {
	return map[string]string{
		model.LabelExportNamespace: export.Namespace, model.LabelExportName: export.Name, labelManagedBy: model.ManagedBy,
	}
}

func exchangeMeta(namespace, name string, labels, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: maps.Clone(labels), Annotations: maps.Clone(annotations)}
}

func indexed[T metav1.Object](list []T) map[types.NamespacedName]T {
	index := make(map[types.NamespacedName]T, len(list))
	for _, obj := range list {
		index[keyOf(obj)] = obj
	}
	return index
}

// compareAll compares objects of one kind in the order of their names, so that the
// same input always gives the same actions.
func compareAll[T Object](desired, current map[types.NamespacedName]T, kind metav1.TypeMeta, asDesired func(current, desired T) bool) changes {
	var plan changes
	for _, at := range slices.SortedFunc(maps.Keys(desired), compareKeys) {
		existing, exists := current[at]
		switch {
		case !exists:
			plan.apply = append(plan.apply, create(desired[at]))
		case !model.IsManaged(existing):
			plan.problems = append(plan.problems, notOurRecord(kind.Kind, at))
		case changesAddressType(existing, desired[at]):
			plan.apply = append(append(plan.apply, remove(existing, kind)...), create(desired[at]))
		case !asDesired(existing, desired[at]):
			plan.apply = append(plan.apply, update(desired[at], existing))
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(current), compareKeys) {
		if _, wanted := desired[at]; !wanted && model.IsManaged(current[at]) {
			plan.remove = append(plan.remove, remove(current[at], kind)...)
		}
	}
	return plan
}

func notOurRecord(kind string, at types.NamespacedName) model.Problem {
	return model.Problem{Reason: model.ReasonNameTaken, Message: fmt.Sprintf(
		"%s %s/%s was not created by Comity, so nothing is published under that name there; delete it", kind, at.Namespace, at.Name)}
}

// changesAddressType reports whether a desired slice has another address type than
// the existing slice of its name. The API server does not allow that change.
func changesAddressType(existing, desired any) bool {
	was, is := existing.(*discoveryv1.EndpointSlice)
	now, _ := desired.(*discoveryv1.EndpointSlice)
	return is && was.AddressType != now.AddressType
}
