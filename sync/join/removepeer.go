// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Intervals while the agents remove what they imported.
const (
	// removalTimeout bounds the removal of imports by the agents.
	removalTimeout   = 2 * time.Minute
	removalInterval  = 500 * time.Millisecond
	progressInterval = 5 * time.Second
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
			return e.holder.errorf("%w", err)
		}
	}
	deadline := time.Now().Add(timeout)
	for i, e := range ends {
		if marked[i] {
			if err := e.finish(ctx, deadline, timeout); err != nil {
				return e.holder.errorf("%w", err)
			}
		}
		if err := e.holder.remove(ctx, secret(e.holder.Namespace, model.PeerName(e.peer))); err != nil {
			return e.holder.errorf("%w", err)
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
		left, countErr := e.imports(ctx)
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

// finish deletes the Peer once the agent has removed what it imported.
func (e end) finish(ctx context.Context, deadline time.Time, timeout time.Duration) error {
	why, err := e.await(ctx, deadline, timeout)
	if err != nil {
		return err
	}
	if why != "" {
		e.holder.report(e.object(), Pending, why)
		return nil
	}
	return e.holder.removeIf(ctx, e.object(), func(metav1.Object) bool { return true }, "")
}

// await waits until condition Removed of the Peer is true. Otherwise it says why it is not.
func (e end) await(ctx context.Context, deadline time.Time, timeout time.Duration) (why string, err error) {
	if e.holder.opts.DryRun {
		return "", nil
	}
	if e.holder.Unattended {
		left, err := e.imports(ctx)
		if err != nil || left == 0 {
			return "", err
		}
		return fmt.Sprintf("the agent does not run; imports with an export of cluster %s: %d", e.peer, left), nil
	}
	until, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	said := time.Now()
	err = wait.PollUntilContextCancel(until, removalInterval, true, func(ctx context.Context) (bool, error) {
		peer, err := e.holder.peer(ctx, e.peer)
		if err != nil || peer.Name == "" || isRemoved(&peer) {
			return err == nil, err
		}
		if time.Since(said) < progressInterval {
			return false, nil
		}
		said = time.Now()
		left, err := e.imports(ctx)
		e.holder.report(&peer, Waiting, fmt.Sprintf("imports with an export of cluster %s: %d", e.peer, left))
		return false, err
	})
	if err == nil || until.Err() == nil || ctx.Err() != nil {
		return "", err
	}
	left, err := e.imports(ctx)
	return fmt.Sprintf("the agent has not set condition %s within %s; imports with an export of cluster %s: %d", v1alpha1.PeerRemoved, timeout, e.peer, left), err
}

// isRemoved reports whether the agent has seen that the cluster is removed, and nothing
// is imported from it any more.
func isRemoved(peer *v1alpha1.Peer) bool {
	removed := apimeta.FindStatusCondition(peer.Status.Conditions, v1alpha1.PeerRemoved)
	return removed != nil && removed.Status == metav1.ConditionTrue && removed.ObservedGeneration >= peer.Generation
}

// imports counts those that have an export of the peer.
func (e end) imports(ctx context.Context) (int, error) {
	all, err := Imports(ctx, e.holder.client)
	return len(From(all, e.peer)), err
}

func (e end) object() *v1alpha1.Peer {
	return &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: string(e.peer)}}
}
