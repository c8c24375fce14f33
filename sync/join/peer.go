// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// plannedPeer is the Peer of holder for peer as Write will apply it.
type plannedPeer struct {
	holder, peer *member
	wanted       *v1alpha1.Peer
	// found is what is there now; empty if nothing is.
	found v1alpha1.Peer
	note  string
}

// Replacement is a cluster that was made again with the same id.
type Replacement struct {
	// Holder is the member whose Peer changes, Peer the cluster that was made again.
	Holder, Peer model.ClusterID
	Old, New     types.UID
}

// reused is the error for an object that was made for another cluster of the same id.
func reused(object, id, was, uid string) error {
	return fmt.Errorf("%s is that of another cluster with the id %s (UID %s, not %s); give one of the two another id, or, to replace the other one, run kubectl comity join --replace",
		object, id, was, uid)
}

func (p plannedPeer) replaces() bool {
	was := p.found.Spec.ClusterUID
	return was != "" && was != p.peer.uid
}

// peer is m's Peer for a cluster; empty if there is none.
func (m *member) peer(ctx context.Context, id model.ClusterID) (found v1alpha1.Peer, err error) {
	err = m.get(ctx, "", string(id), &found)
	return found, client.IgnoreNotFound(err)
}

// planPeer finds out how the Peer for peer will be, with that Secret. It refuses a Peer that
// is somebody else's, and what the API server would refuse. What the administrator set
// stays: labels and confirmMissingBefore are not applied, and what is accepted is what is
// stored unless something else is given.
func (m *member) planPeer(ctx context.Context, peer *member, secret string) (plannedPeer, error) {
	plan := plannedPeer{holder: m, peer: peer}
	found, err := m.peer(ctx, peer.ID)
	plan.found = found
	if err != nil {
		return plan, err
	}
	if found.DeletionTimestamp != nil {
		return plan, fmt.Errorf("the Peer %s is being deleted; wait until it is gone, then join again", peer.ID)
	}
	if plan.replaces() {
		if !m.opts.Replace {
			return plan, reused("the Peer "+string(peer.ID), string(peer.ID), string(found.Spec.ClusterUID), string(peer.uid))
		}
		peer.replaced = true
	}
	cidrs, accepts, err := acceptedFrom(peer, found.Spec.AcceptedCIDRs)
	if err != nil {
		return plan, err
	}
	namespaces, limits := namespacesFrom(peer, found.Spec.AcceptedNamespaces)
	plan.note = strings.Join(slices.DeleteFunc([]string{accepts, limits}, func(s string) bool { return s == "" }), "; ")
	plan.wanted = &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: string(peer.ID), Labels: map[string]string{
			model.LabelClusterID: string(peer.ID), model.LabelClusterSet: peer.Set,
		}},
		Spec: v1alpha1.PeerSpec{
			ClusterSet: peer.Set, ClusterUID: peer.uid, KubeconfigSecret: secret, AcceptedCIDRs: cidrs, AcceptedNamespaces: namespaces,
		},
	}
	if m.opts.ReadOnly {
		return plan, nil
	}
	object := client.ApplyConfigurationFromUnstructured(plan.object())
	if err := m.client.Apply(ctx, object, client.FieldOwner(FieldOwner), client.ForceOwnership, client.DryRunAll); err != nil {
		return plan, fmt.Errorf("check Peer %s: %w", peer.ID, err)
	}
	return plan, nil
}

// object is what is applied. A join of a cluster that was removed takes that back.
func (p plannedPeer) object() *unstructured.Unstructured {
	object := p.holder.toApply(p.wanted)
	if p.found.Spec.Removed {
		_ = unstructured.SetNestedField(object.Object, false, "spec", "removed") // there is a spec
	}
	return object
}

// write brings the Peer up to date.
func (p plannedPeer) write(ctx context.Context) error {
	after, found := p.wanted.Spec, p.found.Labels
	after.ConfirmMissingBefore = p.found.Spec.ConfirmMissingBefore
	after.Drained, after.IgnoreDrain = p.found.Spec.Drained, p.found.Spec.IgnoreDrain // an administrator's
	// To apply the same values again could still write their new ownership.
	if equality.Semantic.DeepEqual(after, p.found.Spec) && labels.Equals(found, labels.Merge(found, p.wanted.Labels)) {
		p.holder.report(p.wanted, Unchanged, p.note)
		return nil
	}
	return p.holder.apply(ctx, p.object(), p.note)
}

// namespacesFrom are the namespaces accepted from peer, and says so if they are new.
func namespacesFrom(peer *member, stored *[]string) (accepted *[]string, note string) {
	if peer.AcceptedNamespaces == nil {
		return stored, ""
	}
	names := sets.List(sets.New(peer.AcceptedNamespaces...))
	if stored != nil && slices.Equal(names, *stored) {
		return stored, ""
	}
	return &names, fmt.Sprintf("accepts only namespaces %s from %s", strings.Join(names, ","), peer.ID)
}

const (
	// removalTimeout bounds the removal of imports by the agents.
	removalTimeout  = 2 * time.Minute
	removalInterval = 500 * time.Millisecond
)

// end is one side of what is disconnected: holder has, or had, a Peer for peer.
type end struct {
	holder *member
	peer   model.ClusterID
}

// forget removes all Peers and their Secrets. All are stated to be removed before the
// first is waited for, so that the agents work side by side and one bound holds for all.
func forget(ctx context.Context, ends []end, timeout time.Duration) error {
	marked := make([]bool, len(ends))
	for i, e := range ends {
		var err error
		if marked[i], err = e.mark(ctx); err != nil {
			return e.holder.named(err)
		}
	}
	until, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for i, e := range ends {
		var err error
		if marked[i] {
			err = e.finish(ctx, until, timeout)
		}
		if err == nil {
			err = e.holder.remove(ctx, secret(e.holder.Namespace, model.PeerName(e.peer)))
		}
		if err := e.holder.named(err); err != nil {
			return err
		}
	}
	return nil
}

// mark states in the Peer that its cluster is removed. A Peer without anything else is
// created where there is none, although something is still imported. False if there is
// nothing to remove.
func (e end) mark(ctx context.Context) (bool, error) {
	peer, err := e.holder.peer(ctx, e.peer)
	if err != nil && !apimeta.IsNoMatchError(err) {
		return false, err
	}
	if peer.Name == "" {
		left, _, countErr := e.imports(ctx)
		if countErr != nil || left == 0 {
			return false, countErr
		}
		if err != nil {
			return false, err // nothing can be stated without the definition
		}
		stated := e.object()
		stated.Spec.Removed = true
		return true, e.holder.apply(ctx, stated, "states that the cluster is removed")
	}
	if peer.Spec.Removed || e.holder.opts.DryRun {
		return true, nil
	}
	// The UID makes the API server refuse the patch for another Peer of that name.
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"removed":true}}`, peer.UID)
	if err := e.holder.client.Patch(ctx, &peer, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(FieldOwner)); err != nil {
		return false, fmt.Errorf("set spec.removed of Peer %s: %w", e.peer, err)
	}
	e.holder.report(&peer, Changed, "states that the cluster is removed")
	return true, nil
}

// finish deletes the Peer once condition Removed of it is true: the agent has seen that the
// cluster is removed, and nothing is imported from it any more. Otherwise it reports why not.
func (e end) finish(ctx, until context.Context, timeout time.Duration) error {
	m := e.holder
	removed, why := m.opts.DryRun, "the agent does not run"
	if !removed && !m.Unattended {
		why = fmt.Sprintf("the agent has not set condition %s within %s", v1alpha1.PeerRemoved, timeout)
		err := wait.PollUntilContextCancel(until, removalInterval, true, func(ctx context.Context) (bool, error) {
			peer, err := m.peer(ctx, e.peer)
			c := ptr.Deref(apimeta.FindStatusCondition(peer.Status.Conditions, v1alpha1.PeerRemoved), metav1.Condition{})
			return err == nil && (peer.Name == "" || c.Status == metav1.ConditionTrue && c.ObservedGeneration >= peer.Generation), err
		})
		if removed = err == nil; !removed && (until.Err() == nil || ctx.Err() != nil) {
			return err
		}
	}
	if !removed {
		count, left, err := e.imports(ctx)
		if err != nil {
			return err
		}
		if count > 0 || !m.Unattended {
			m.report(e.object(), Pending, why+"; "+left)
			return nil
		}
	}
	return m.removeIf(ctx, e.object(), func(metav1.Object) bool { return true }, "")
}

// imports counts those that have an export of the peer, as a text too.
func (e end) imports(ctx context.Context) (count int, text string, err error) {
	count, _, err = CountImports(ctx, e.holder.client, e.peer)
	return count, fmt.Sprintf("imports with an export of cluster %s: %d", e.peer, count), err
}

func (e end) object() *v1alpha1.Peer {
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: string(e.peer)}}
}
