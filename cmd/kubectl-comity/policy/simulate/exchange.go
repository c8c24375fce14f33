// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// exchanged is what members publish, as far as it was read.
type exchanged struct {
	// published has, for each member whose exchange namespace was read, the UIDs of the
	// exports that are published.
	published map[model.ClusterID]map[types.UID]bool
	// namespaces has, for each member that has published all that it shares, what it
	// publishes of its namespaces.
	namespaces map[model.ClusterID]map[string]model.MemberNamespace
	// records are the ExportRecords by exchange namespace and name.
	records map[types.NamespacedName]*exchangev1alpha1.ExportRecord
}

func newExchanged() *exchanged {
	return &exchanged{
		published: map[model.ClusterID]map[types.UID]bool{}, namespaces: map[model.ClusterID]map[string]model.MemberNamespace{},
		records: map[types.NamespacedName]*exchangev1alpha1.ExportRecord{},
	}
}

// add adds what was read in another API server.
func (e *exchanged) add(other *exchanged) {
	for id, uids := range other.published {
		if e.published[id] == nil {
			e.published[id] = map[types.UID]bool{}
		}
		maps.Copy(e.published[id], uids)
	}
	maps.Copy(e.namespaces, other.namespaces)
	maps.Copy(e.records, other.records)
}

// readExchanged reads the exchange namespaces in one API server, which are in a hub
// those of all members. It is not this cluster's own decision what counts there: only
// objects in a namespace that is labeled as the member's do.
func readExchanged(ctx context.Context, target *command.Target, namespaces map[string]*corev1.Namespace) (*exchanged, error) {
	e := newExchanged()
	from := map[string]model.ClusterID{}
	for name, namespace := range namespaces {
		id, err := model.ParseClusterID(namespace.Labels[model.LabelExchangeFrom])
		if err != nil {
			continue
		}
		from[name] = id
		if e.published[id] == nil {
			e.published[id] = map[types.UID]bool{}
		}
	}
	if len(from) == 0 {
		return e, nil
	}
	if err := e.readExports(ctx, target, from); err != nil {
		return nil, err
	}
	return e, e.readNamespaces(ctx, target, from)
}

// readExports notes the records, and what is published as controllers.Published does.
func (e *exchanged) readExports(ctx context.Context, target *command.Target, from map[string]model.ClusterID) error {
	return list(ctx, target, func(page *exchangev1alpha1.ExportRecordList) {
		for i := range page.Items {
			record := &page.Items[i]
			id := from[record.Namespace]
			if id == "" {
				continue
			}
			e.records[client.ObjectKeyFromObject(record)] = record
			if !record.Spec.Withdrawn && model.IsManaged(record) {
				e.published[id][record.Spec.ExportUID] = true
			}
		}
	})
}

// readNamespaces notes the namespaces of the members that have published all that they
// share, which their MemberRecord says.
func (e *exchanged) readNamespaces(ctx context.Context, target *command.Target, from map[string]model.ClusterID) error {
	shared := func(namespace string) model.ClusterID {
		if id := from[namespace]; namespace == model.ExchangeNamespace(id) {
			return id
		}
		return ""
	}
	err := list(ctx, target, func(page *exchangev1alpha1.MemberRecordList) {
		for _, member := range page.Items {
			if id := shared(member.Namespace); id != "" {
				e.namespaces[id] = map[string]model.MemberNamespace{}
			}
		}
	})
	if err != nil {
		return err
	}
	return list(ctx, target, func(page *exchangev1alpha1.NamespaceRecordList) {
		for i := range page.Items {
			record := &page.Items[i]
			if id := shared(record.Namespace); e.namespaces[id] != nil {
				e.namespaces[id][record.Name] = memberNamespace(id, record)
			}
		}
	})
}

// memberNamespace reads a record as peers do: of a namespace whose record is invalid
// nothing is known.
func memberNamespace(id model.ClusterID, record *exchangev1alpha1.NamespaceRecord) model.MemberNamespace {
	labels, err := exchange.FromNamespaceRecord(id, record)
	if err != nil {
		return model.MemberNamespace{Cluster: id, Presence: model.NamespaceUnknown}
	}
	return model.MemberNamespace{Cluster: id, Presence: model.NamespacePresent, Labels: labels}
}

// exports are what one cluster exports to another, by the namespace and name of the
// Service; ok is false if its exchange was not read. Records that are not valid are
// left out, as by readers.
func (e *exchanged) exports(from, to model.ClusterID) (exports map[types.NamespacedName]model.Export, ok bool) {
	if e.published[from] == nil {
		return nil, false
	}
	exports = map[types.NamespacedName]model.Export{}
	shared, scoped := model.ExchangeNamespace(from), model.ScopedExchangeNamespace(from, to)
	for at := range e.records {
		key, valid := model.RecordKey(at.Name)
		if !valid || at.Namespace != shared && at.Namespace != scoped {
			continue
		}
		record := exchange.Newest(e.records[types.NamespacedName{Namespace: shared, Name: at.Name}], e.records[types.NamespacedName{Namespace: scoped, Name: at.Name}])
		if record.Spec.Withdrawn {
			continue
		}
		if export, err := exchange.FromRecord(from, record); err == nil {
			exports[key] = export
		}
	}
	return exports, true
}
