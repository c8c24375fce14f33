// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/bench/fleet"
)

const (
	// exporters is how many members export each Service.
	exporters = 4
	// namespaces is how many namespaces the Services are in.
	namespaces = 20
)

// World is a clusterset of which one member is measured. Exports are spread evenly over all
// members, and endpoints over the exports, each of which has one slice.
type World struct {
	// Measured is the id of the real member, Set the clusterset.
	Measured model.ClusterID
	Set      string
	// Members counts the measured one too.
	Members, Exports, Endpoints int
}

// Export is one Service that one member exports.
type Export struct {
	Key types.NamespacedName
	// Of is the number of the member, 0 the measured one.
	Of int
	// first is the number of its first address, and endpoints is how many it has.
	first, endpoints int
}

// ExportID identifies an export.
type ExportID struct {
	key types.NamespacedName
	of  int
}

// ID identifies e.
func (e Export) ID() ExportID { return ExportID{e.Key, e.Of} }

// ID is the id of a member.
func (w World) ID(member int) model.ClusterID {
	if member == 0 {
		return w.Measured
	}
	return model.ClusterID(fmt.Sprintf("m%03d", member))
}

// Namespaces are those of the Services.
func (w World) Namespaces() (names []string) {
	for n := range namespaces {
		names = append(names, fmt.Sprintf("scale-%02d", n))
	}
	return names
}

// Services is how many there are: exporters share each.
func (w World) Services() int { return (w.Exports + w.shared() - 1) / w.shared() }

func (w World) shared() int { return min(exporters, w.Members) }

// All are all exports.
func (w World) All() (all []Export) {
	for n := range w.Exports {
		service := n / w.shared()
		all = append(all, Export{
			Key: types.NamespacedName{Namespace: fmt.Sprintf("scale-%02d", service%namespaces), Name: fmt.Sprintf("service-%05d", service)},
			Of:  n % w.Members, first: n * w.Endpoints / w.Exports, endpoints: max(1, w.Endpoints/w.Exports),
		})
	}
	return all
}

// Source is the slice of an export as the EndpointSlice controller of its cluster writes it. The
// first endpoint has another address if changed is not 0.
func (e Export) Source(changed int) *discoveryv1.EndpointSlice {
	s := fleet.Slice(e.Key.Namespace, e.Key.Name, 0, e.first, e.endpoints)
	if changed != 0 {
		s.Endpoints[0].Addresses[0] = Address(changed)
	}
	return s
}

// Address is that which the n-th change gives to an endpoint; no other endpoint has it.
func Address(n int) string { return fleet.Address(1<<19 + n%(1<<18)) }

// published is metadata of what a member publishes, with managed fields about as long as those
// that an API server adds.
func published(namespace, name string) metav1.ObjectMeta {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: uuid.NewUUID(), CreationTimestamp: now, Generation: 1,
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:comity.dev/applied":{}},"f:labels":{` + strings.Repeat(`"f:service.kubernetes.io/headless":{},`, 10) + `"f:a":{}}}}`),
		}},
	}
}

// Slice is the published copy of Source.
func (w World) Slice(e Export, changed int) *discoveryv1.EndpointSlice {
	s, _ := exchange.CopySlice(e.Key, e.Source(changed), model.AllPorts()) // it has addresses
	meta := published(model.ExchangeNamespace(w.ID(e.Of)), s.Name)
	meta.Labels, meta.Annotations = s.Labels, s.Annotations
	s.ObjectMeta = meta
	return s
}

// Of are the objects that a simulated member publishes, but its slices: who it is, its
// namespaces, its exports, and reports on those that the measured member exports, by UID.
func (w World) Of(member int, measured map[types.NamespacedName]types.UID) (objects []client.Object) {
	id := w.ID(member)
	shared := model.ExchangeNamespace(id)
	objects = append(objects, w.Lease(member), &exchangev1alpha1.MemberRecord{
		ObjectMeta: published(shared, string(id)),
		Spec:       exchangev1alpha1.MemberRecordSpec{ClusterID: string(id), ClusterSet: w.Set, ClusterUID: w.UID(member), Version: "v0.0.0"},
	})
	for _, name := range w.Namespaces() {
		objects = append(objects, &exchangev1alpha1.NamespaceRecord{ObjectMeta: published(shared, name)})
	}
	for key, uid := range measured {
		objects = append(objects, w.report(member, key, uid))
	}
	return objects
}

// report says that a member imports an export of the measured one.
func (w World) report(member int, key types.NamespacedName, uid types.UID) *exchangev1alpha1.ImportRecord {
	return &exchangev1alpha1.ImportRecord{
		ObjectMeta: published(model.ScopedExchangeNamespace(w.ID(member), w.Measured), model.RecordName(key.Namespace, key.Name)),
		Spec:       exchange.ImportRecordSpec(key, model.Report{ExportUID: uid, Imported: true, Reason: model.ReasonImported, Since: time.Now()}),
	}
}

// Record is what is published of an export beside its slice.
func (w World) Record(e Export) *exchangev1alpha1.ExportRecord {
	return &exchangev1alpha1.ExportRecord{
		ObjectMeta: published(model.ExchangeNamespace(w.ID(e.Of)), model.RecordName(e.Key.Namespace, e.Key.Name)),
		Spec: exchange.Record(model.Export{
			Key:          e.Key,
			SourceExport: model.SourceExport{UID: types.UID(fmt.Sprintf("11111111-1111-4111-8111-%012d", e.first)), CreatedAt: time.Now()},
			ServiceProperties: model.ServiceProperties{
				Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: corev1.ServiceAffinityNone,
			},
			Identity: map[string]string{}, Slices: []string{e.Source(0).Name},
		}),
	}
}

// Lease is that of a member, renewed now.
func (w World) Lease(member int) *coordinationv1.Lease {
	id, now := string(w.ID(member)), metav1.NowMicro()
	meta := published(model.ExchangeNamespace(w.ID(member)), id)
	meta.Annotations = map[string]string{model.AnnotationClusterUID: string(w.UID(member))}
	return &coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{HolderIdentity: &id, RenewTime: &now}}
}

// UID is that of the cluster of a simulated member.
func (w World) UID(member int) types.UID {
	return types.UID(fmt.Sprintf("22222222-2222-4222-8222-%012d", member))
}
