// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// memberRecord is what the peer says of itself; nil if it says nothing.
func (c *Connection) memberRecord() *exchangev1alpha1.MemberRecord {
	item, found, err := c.feeds.members.informer.GetIndexer().GetByKey(model.ExchangeNamespace(c.opts.ID) + "/" + string(c.opts.ID))
	if record, ok := item.(*exchangev1alpha1.MemberRecord); err == nil && found && ok {
		return record
	}
	return nil
}

// ClusterUID is which cluster the peer says it is; empty if it does not say, or
// cannot be believed.
func (c *Connection) ClusterUID() types.UID {
	record := c.memberRecord()
	if record == nil || !c.Verified() || !plausibleUID(record.Spec.ClusterUID) {
		return ""
	}
	return record.Spec.ClusterUID
}

// checkMember says what is wrong with the peer's record of itself. A record of
// another id or set means that the Secret leads to the wrong cluster, one of
// another UID that the id now belongs to another cluster, whose exports must
// not be taken for what the first one left. It needs mu.
func (c *Connection) checkMember(record *exchangev1alpha1.MemberRecord) Failure {
	id := c.opts.ID
	name := fmt.Sprintf("MemberRecord %s/%s", model.ExchangeNamespace(id), id)
	switch {
	case record == nil:
		return Failure{ReasonMemberUnverified, fmt.Sprintf("%s: does not exist in the peer; expected it once the peer has published all its exports; "+
			"remedy: check that Comity runs there with cluster id %q", name, id)}
	case record.Spec.ClusterID != string(id):
		return Failure{ReasonMemberUnverified, fmt.Sprintf("%s, spec.clusterID: is %s; expected %q; remedy: correct the label %s of the peer Secret, or its kubeconfig",
			name, quoteShort(record.Spec.ClusterID), id, model.LabelClusterID)}
	case record.Spec.ClusterSet != c.opts.ClusterSet:
		return Failure{ReasonMemberUnverified, fmt.Sprintf("%s, spec.clusterSet: is %s; expected %q; remedy: join clusters of one set only",
			name, quoteShort(record.Spec.ClusterSet), c.opts.ClusterSet)}
	case record.Spec.ClusterUID != "" && !plausibleUID(record.Spec.ClusterUID):
		return Failure{ReasonMemberUnverified, fmt.Sprintf("%s, spec.clusterUID: is %s; expected the UID of namespace kube-system there; remedy: check Comity in cluster %s",
			name, quoteShort(string(record.Spec.ClusterUID)), id)}
	case c.uid != "" && record.Spec.ClusterUID == "":
		return Failure{ReasonMemberUnverified, fmt.Sprintf("%s, spec.clusterUID: is missing; expected %s, the cluster that has been read so far; remedy: upgrade Comity in cluster %s",
			name, c.uid, id)}
	case c.uid != "" && record.Spec.ClusterUID != c.uid:
		return Failure{ReasonClusterIDReused, fmt.Sprintf("%s, spec.clusterUID: is %s; expected %s, the cluster that had id %q so far; all that was imported from it is kept; "+
			"remedy: give the new cluster another id, or, if it takes the place of the old one, remove annotation %s from the peer Secret",
			name, record.Spec.ClusterUID, c.uid, id, model.AnnotationClusterUID)}
	}
	return Failure{}
}

// confirm reads who the peer is once more, before a list of its exports takes
// the place of an earlier one. The two are read apart from each other, so where
// an exchange was emptied, or the address leads to another cluster now, the
// exports could seem withdrawn a moment before the peer is known to be no longer
// itself. An error keeps the list from being taken.
func (c *Connection) confirm(ctx context.Context) error {
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

// plausibleUID reports whether a peer's word may stand in an annotation and in
// a message. The API server gives UIDs of 36 characters; others are let pass.
func plausibleUID(uid types.UID) bool {
	if uid == "" || len(uid) > 128 {
		return false
	}
	for _, r := range uid {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.' {
			return false
		}
	}
	return true
}
