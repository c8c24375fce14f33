// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// memberRecord is the MemberRecord of the peer; nil if there is none.
func (c *Connection) memberRecord() *exchangev1alpha1.MemberRecord {
	item, found, err := c.feeds.members.informer.GetIndexer().GetByKey(model.ExchangeNamespace(c.opts.ID) + "/" + string(c.opts.ID))
	if record, ok := item.(*exchangev1alpha1.MemberRecord); err == nil && found && ok {
		return record
	}
	return nil
}

// StatesWithdrawals reports whether the peer states which exports it withdraws, so
// that a record that is missing was lost; known is false while its MemberRecord is
// missing.
func (c *Connection) StatesWithdrawals() (states, known bool) {
	record := c.memberRecord()
	if record == nil {
		return false, false
	}
	return slices.Contains(record.Spec.Features, exchangev1alpha1.FeatureWithdrawals), true
}

// ClusterUID is the UID in the peer's MemberRecord; empty if there is none, or the
// record is not valid.
func (c *Connection) ClusterUID() types.UID {
	record := c.memberRecord()
	if record == nil || !c.Verified() || !exchange.ValidUID(record.Spec.ClusterUID) {
		return ""
	}
	return record.Spec.ClusterUID
}

// checkMember compares the peer's record of itself with what is expected. It
// needs mu.
func (c *Connection) checkMember(record *exchangev1alpha1.MemberRecord) Failure {
	expected := exchange.Member{ID: c.opts.ID, ClusterSet: c.opts.ClusterSet, ClusterUID: c.uid}
	switch message, reused := expected.Problem(record); {
	case message == "":
		return Failure{}
	case reused:
		return Failure{ReasonClusterIDReused, message}
	default:
		return Failure{ReasonMemberUnverified, message}
	}
}

// confirmMember reads the MemberRecord again before a list of exports replaces an
// earlier one. If the exchange was emptied, or the address leads to another cluster
// now, the exports would otherwise seem withdrawn before the MemberRecord is found to
// be missing or another one. An error keeps the list from being used.
func (c *Connection) confirmMember(ctx context.Context) error {
	if !c.verified.Load() {
		return nil // nothing is concluded from what it lacks
	}
	record, err := c.readMember(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.checkMember(record); p != (Failure{}) {
		return errors.New(p.Message)
	}
	return nil
}

// readMember reads from the peer's API server what memberRecord reads from the cache.
func (c *Connection) readMember(ctx context.Context) (*exchangev1alpha1.MemberRecord, error) {
	f := c.feeds.members
	var list exchangev1alpha1.MemberRecordList
	if err := f.client.Get().Namespace(f.namespace).Resource(f.resource).MaxRetries(1).Do(ctx).Into(&list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Name == string(c.opts.ID) {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}
