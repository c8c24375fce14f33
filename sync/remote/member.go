// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// memberRecord is the MemberRecord of the peer; nil if there is none.
func (c *Connection) memberRecord() *exchangev1alpha1.MemberRecord {
	record, _ := cached[*exchangev1alpha1.MemberRecord](c.feeds.members, string(c.opts.ID))
	return record
}

// checkMember compares the peer's record of itself with what is expected.
func (c *Connection) checkMember(record *exchangev1alpha1.MemberRecord) Failure {
	expected := exchange.Member{ID: c.opts.ID, ClusterSet: c.opts.ClusterSet, ClusterUID: c.opts.ClusterUID}
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
// now, the exports would otherwise seem missing before the MemberRecord is found to be
// missing or another one. An error keeps the list from being used.
func (c *Connection) confirmMember(ctx context.Context) error {
	if !c.verified.Load() {
		return nil // nothing is concluded from what it lacks
	}
	record, err := c.readMember(ctx)
	if err != nil {
		return err
	}
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
