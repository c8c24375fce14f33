// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// PublishInput is everything that decides what stands in the exchange for one
// local ServiceExport. Nothing in it is changed.
type PublishInput struct {
	// Key is the namespace and name of the ServiceExport.
	Key types.NamespacedName
	// Record is what is to be published (exchange.Record); nil to withdraw.
	Record *exchangev1alpha1.ExportRecordSpec
	// Slices are the copies to publish as package exchange made them, named and
	// labelled; their namespace is ignored. Not looked at if Record is nil.
	Slices []*discoveryv1.EndpointSlice
	// Audience are the exchange namespaces to publish in, in any order.
	Audience []string
	// CurrentRecords and CurrentSlices are those of this export in all exchange
	// namespaces: records called model.RecordName(key), slices labelled
	// model.LabelExportNamespace and model.LabelExportName.
	CurrentRecords []*exchangev1alpha1.ExportRecord
	CurrentSlices  []*discoveryv1.EndpointSlice
}

// PublishPlan is what is outstanding in the exchange for one export.
type PublishPlan struct {
	// Actions are to be made in this order: slices, then records, so that a
	// reader of a record finds the slices; then what leaves, records first.
	Actions []Action
	// Problems name foreign objects in the way. With any, the export does not
	// stand in the exchange as it should.
	Problems []model.Problem
}

// Publish plans the records and slices of one export.
func Publish(in PublishInput) PublishPlan {
	panic("not written yet")
}

// Namespaces plans the NamespaceRecords in one exchange namespace. desired
// holds the identity labels (possibly none) of every namespace to publish;
// current are the records that exist there.
func Namespaces(exchange string, desired map[string]map[string]string, current []*exchangev1alpha1.NamespaceRecord) []Action {
	panic("not written yet")
}

// Member plans the MemberRecord of this cluster in one exchange namespace.
// current is the record called desired.ClusterID; nil if there is none.
func Member(exchange string, desired exchangev1alpha1.MemberRecordSpec, current *exchangev1alpha1.MemberRecord) []Action {
	panic("not written yet")
}
