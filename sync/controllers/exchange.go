// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// writeAll makes the writes of each list in the exchange, also if one of them fails. The
// error is the first one.
func (b *base) writeAll(ctx context.Context, lists [][]plan.Action) error {
	var first error
	for _, actions := range lists {
		if _, err := b.publishing.Apply(ctx, actions); first == nil {
			first = err
		}
	}
	return first
}

// Exchange is the API server in which this cluster publishes: its own, or a
// hub. All records and slice copies are read, written and watched through it
// and nothing else is; what is imported, and what is exported, stays with the
// manager's client.
//
// Only this cluster's own exchange namespaces are ever asked for
// (model.ExchangeNamespace(self) and model.ScopedExchangeNamespace(self, peer)),
// but some reads name no namespace and find an object in whichever of them by
// an index, so Client may answer for those namespaces alone.
type Exchange struct {
	// Client reads from a cache and writes to the API server. The kinds are
	// ExportRecord, ImportRecord, NamespaceRecord, MemberRecord and EndpointSlice.
	// The cache must keep manager, operation and subresource of managedFields, by
	// which ownership is proven. The manager must not wait for it before it starts: a
	// hub that does not answer must not keep this cluster from importing.
	Client client.Client
	// Indexer indexes fields in that cache, before the manager starts.
	Indexer client.FieldIndexer
	// Watch is a source of the keys that events of one kind in that cache give.
	Watch func(kind client.Object, keys handler.EventHandler) source.Source
	// Problem says why nothing can be published in one of the exchange
	// namespaces now, and what to do about it; "" if it can.
	Problem func(ctx context.Context, namespace string) string
	// Changed notifies that Problem may return something else, or that an exchange
	// namespace was created again. Required, unless the exchange is the manager's API
	// server, whose Namespaces are watched.
	Changed *notify.Notifier
	// Live reads Leases without a cache.
	Live client.Reader
}

// ownExchange is the manager's API server as exchange.
func ownExchange(mgr ctrl.Manager, self model.ClusterID) *Exchange {
	reader := mgr.GetClient()
	problem := func(ctx context.Context, name string) string {
		namespace, err := getNamespace(ctx, reader, name)
		if err != nil {
			return fmt.Sprintf("exchange namespace %s cannot be read: %v", name, err)
		}
		return exchange.NamespaceProblem(self, name, namespace)
	}
	watch := func(kind client.Object, keys handler.EventHandler) source.Source {
		return source.Kind(mgr.GetCache(), kind, keys)
	}
	return &Exchange{
		Client: reader, Indexer: mgr.GetFieldIndexer(), Watch: watch,
		Live: mgr.GetAPIReader(), Problem: problem, Changed: &notify.Notifier{},
	}
}

// member is the namespace and name of the MemberRecord.
func (b *base) member() types.NamespacedName {
	return types.NamespacedName{Namespace: model.ExchangeNamespace(b.Self), Name: string(b.Self)}
}

// duplicate says that another cluster publishes in this cluster's exchange
// namespaces, or may do so, or that this cluster has another one's id; "" if neither is
// so. In a hub two clusters with one id have one place, and what is there was made by
// the same field manager, so nothing else shows whose it is: the first to create the
// Lease keeps the place. In its own API server nobody else can write there, and a
// restored cluster may have another UID than its records.
func (b *base) duplicate(ctx context.Context) string {
	switch {
	case b.hub:
		return cmp.Or(b.duplicateRecord(ctx), b.placeProblem())
	case b.Peers.OwnIDClaim() == "":
		return ""
	}
	return b.duplicateRecord(ctx)
}

// duplicateRecord says that another cluster wrote the MemberRecord of this
// cluster's id into the hub, or that nobody did and the id is another cluster's, or why that
// is not known; "" if none of that is so.
func (b *base) duplicateRecord(ctx context.Context) string {
	record, err := get[exchangev1alpha1.MemberRecord](ctx, b.Exchange.Client, b.member())
	switch {
	case err != nil:
		return err.Error()
	case record == nil:
		return b.foreignID()
	case !b.hub, record.Spec.ClusterUID == "", record.Spec.ClusterUID == b.ClusterUID:
		return ""
	}
	return b.placeTaken("MemberRecord", record.Spec.ClusterUID)
}

// problem says why this cluster cannot publish in one of its exchange namespaces
// now, another cluster with its id included; "" if it can.
func (b *base) problem(ctx context.Context, namespace string) string {
	return cmp.Or(b.Exchange.Problem(ctx, namespace), b.duplicate(ctx))
}

// isIDDoubtful reports whether this cluster may have been started with the id of
// another one: a Peer has that id, and nothing shows that this cluster published
// under it. What is imported from the other cluster looks like this cluster's own then.
func (b *base) isIDDoubtful(ctx context.Context) bool {
	switch {
	case b.Peers.OwnIDClaim() == "":
		return false
	case b.hub: // whose cache may never be filled, for which no import waits
		return b.placeProblem() != ""
	}
	return b.duplicate(ctx) != ""
}

// foreignID says that this cluster was started with the id of another one, which a Peer
// proves; "" if none does. It is for a cluster without a MemberRecord.
func (b *base) foreignID() string {
	other := b.Peers.OwnIDClaim()
	if other == "" {
		return ""
	}
	return fmt.Sprintf("Peer %s names another cluster (its kube-system namespace has the UID %s, this one's %s), and this cluster has never published under that id, "+
		"so nothing is published; correct the id of the agent (--cluster-id, or ClusterProperty %s), or delete that Peer",
		b.Self, other, b.ClusterUID, model.LabelClusterID)
}
