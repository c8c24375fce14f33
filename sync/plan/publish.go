// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
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
	// Annotations are those of the records that publish Record.
	Annotations map[string]string
	// Slices are the copies to publish (exchange.CopySlice); their namespace is
	// ignored. If Record is nil, they are not read.
	Slices []*discoveryv1.EndpointSlice
	// Audience are the exchange namespaces to publish in, in any order.
	Audience []string
	// Moved is true if the readers of all other exchange namespaces find Record in
	// Audience. Then it is deleted from the others, which states nothing, once it is
	// in Audience; otherwise the others state its withdrawal.
	Moved bool
	// Exists is the UID of the ServiceExport; empty if there is none. The withdrawal of
	// its records is suspended, that of all others ended.
	Exists types.UID
	// Lost marks the current records as lost, and changes nothing else.
	Lost bool
	// Collect are the exchange namespaces in which nobody needs the statement of a
	// withdrawal any more.
	Collect []string
	// Now is when a withdrawal is stated that was not stated before.
	Now time.Time
	// Own is true if everything in the exchange namespaces is this cluster's own, whatever
	// managedFields say: its Lease is there. Otherwise what Comity did not apply is foreign.
	Own bool
	// CurrentRecords and CurrentSlices are those of this export in all exchange
	// namespaces: records called model.RecordName(key), copies labeled
	// model.LabelExportNamespace and model.LabelExportName, or named by a record.
	CurrentRecords []*exchangev1alpha1.ExportRecord
	CurrentSlices  []*discoveryv1.EndpointSlice
}

// PublishPlan is what is outstanding in the exchange for one export. Each list of
// actions is for one exchange namespace. It is made in its order, up to the first
// action that fails, and whatever came of the other lists.
type PublishPlan struct {
	// Publish are new slices, the record that names them, then the deletion of the
	// slices that it no longer names.
	Publish [][]Action
	// Withdraw are the record that states the withdrawal, then the deletion of its
	// slices. To be made after Publish, so that who stays in the scope of the export
	// finds it in another namespace first.
	Withdraw [][]Action
	// Leave are deletions in namespaces whose readers find the export in another
	// one. To be made only if all of Publish succeeded.
	Leave [][]Action
	// Problems name foreign objects that have the names of objects to publish. If
	// there is one, the export is not completely published.
	Problems []model.Problem
}

func keyOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Publish plans the records and slices of one export.
//
// A record that is no longer published is not deleted: it is replaced by the
// statement that the export is withdrawn, because to a reader a record that is
// missing was lost.
func Publish(in PublishInput) PublishPlan {
	actions, problems := compareAll(in.desired(), slices.Concat(objects(in.CurrentSlices), objects(in.CurrentRecords)), in.Own)
	plan := PublishPlan{Problems: problems}
	byNamespace := map[string][]Action{}
	for _, a := range actions {
		byNamespace[a.Object.GetNamespace()] = append(byNamespace[a.Object.GetNamespace()], a)
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		actions := byNamespace[namespace]
		switch {
		case in.Record != nil && slices.Contains(in.Audience, namespace):
			plan.Publish = append(plan.Publish, actions)
		case !in.Moved:
			plan.Withdraw = append(plan.Withdraw, actions)
		case len(plan.Problems) == 0: // a record that is not published yet cannot replace another
			plan.Leave = append(plan.Leave, actions)
		}
	}
	return plan
}

// desired returns the slices and records that are to exist. Where the export is published,
// its record comes after the statement of its withdrawal: the last one counts.
func (in PublishInput) desired() (want []Object) {
	for _, current := range in.CurrentRecords {
		if in.IsOwn(current) && current.DeletionTimestamp == nil && !in.Moved && !slices.Contains(in.Collect, current.Namespace) {
			want = append(want, in.stated(current))
		}
	}
	if in.Record == nil {
		return want
	}
	for _, namespace := range in.Audience {
		for _, source := range in.Slices {
			s := *source
			s.ObjectMeta = objectMeta(namespace, source.Name, source.Labels, source.Annotations)
			want = append(want, &s)
		}
		want = append(want, in.record(namespace, *in.Record, in.Annotations))
	}
	return want
}

// IsOwn reports whether an object in the exchange is this cluster's own.
func (in PublishInput) IsOwn(object metav1.Object) bool { return in.Own || model.IsManaged(object) }

// stated is what a current record is to say if the export is not published there: that it
// was lost, or that it is withdrawn.
func (in PublishInput) stated(current *exchangev1alpha1.ExportRecord) *exchangev1alpha1.ExportRecord {
	spec := current.Spec
	suspended := spec.ExportUID == in.Exists
	if ended := spec.Withdrawn && !spec.Suspended; in.Lost && !ended {
		spec.Lost = true
		ofPolicies := maps.Clone(current.Annotations)
		maps.DeleteFunc(ofPolicies, func(key, _ string) bool {
			return !slices.Contains([]string{model.AnnotationDeniedSince, model.AnnotationKept, model.AnnotationExcluded}, key)
		})
		return in.record(current.Namespace, spec, ofPolicies)
	}
	at := metav1.NewTime(in.Now.UTC().Truncate(time.Second))
	if spec.Withdrawn && spec.Suspended == suspended && spec.WithdrawnAt != nil {
		at = *spec.WithdrawnAt
	}
	narrowed := in.Record != nil && in.Record.ExportUID == spec.ExportUID
	return in.record(current.Namespace, exchange.WithdrawnRecord(spec, model.Withdrawal{Suspended: suspended, Narrowed: narrowed}, &at), nil)
}

// record is the record of the export in one exchange namespace.
func (in PublishInput) record(namespace string, spec exchangev1alpha1.ExportRecordSpec, annotations map[string]string) *exchangev1alpha1.ExportRecord {
	return &exchangev1alpha1.ExportRecord{
		ObjectMeta: objectMeta(namespace, model.RecordName(in.Key.Namespace, in.Key.Name), recordLabels(in.Key), annotations),
		Spec:       spec,
	}
}

// Record plans the one record of a kind and name: desired, or that there is none if that is nil.
// current is what exists there; nil if nothing does. own is that of PublishInput, and the problems
// are as in PublishPlan.
func Record[T interface {
	Object
	comparable
}](desired, current T, own bool) ([]Action, []model.Problem) {
	some := func(record T) []Object {
		var none T
		return objects(model.Without([]T{record}, func(o T) bool { return o == none }))
	}
	return compareAll(some(desired), some(current), own)
}

// Reports plans the ImportRecords about the exports of one namespace/name.
// desired has the records to publish, by exchange namespace; current are the
// records of that name in all exchange namespaces. An existing record keeps its
// Since as long as the same export is imported, or is not imported for the same
// reason. own is that of PublishInput. The actions may be made in any order; the problems
// name foreign objects that have the names of reports.
func Reports(key types.NamespacedName, desired map[string]exchangev1alpha1.ImportRecordSpec, current []*exchangev1alpha1.ImportRecord, own bool) ([]Action, []model.Problem) {
	var want []Object
	for exchange, spec := range desired {
		old, has := model.Find(current, func(r *exchangev1alpha1.ImportRecord) bool { return r.Namespace == exchange })
		if has && (own || model.IsManaged(old)) &&
			old.Spec.ExportUID == spec.ExportUID && old.Spec.Imported == spec.Imported && old.Spec.Reason == spec.Reason {
			spec.Since = old.Spec.Since
		}
		want = append(want, &exchangev1alpha1.ImportRecord{
			ObjectMeta: objectMeta(exchange, model.RecordName(key.Namespace, key.Name), recordLabels(key), nil),
			Spec:       spec,
		})
	}
	return compareAll(want, objects(current), own)
}

func recordLabels(export types.NamespacedName) map[string]string {
	return map[string]string{model.LabelExportNamespace: export.Namespace, model.LabelExportName: export.Name}
}

// objectMeta is metadata with copies of labels and annotations.
func objectMeta(namespace, name string, labels, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: maps.Clone(labels), Annotations: maps.Clone(annotations)}
}

func objects[T Object](list []T) []Object {
	return model.Map(list, func(o T) Object { return o })
}
