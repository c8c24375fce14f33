// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// peerConditions are those that should be true of a Peer, in the order in which they are shown.
var peerConditions = []string{
	v1alpha1.PeerAccepted, v1alpha1.PeerConnected, v1alpha1.PeerRecordsValid, v1alpha1.PeerWithinLimits, v1alpha1.PeerComplete,
}

// connectTime is how long it is no problem that the agent connects to a peer.
const connectTime = time.Minute

// peers reads the Peers and their conditions.
func (p *part) peers(ctx context.Context, target *command.Target) {
	var found v1alpha1.PeerList
	err := target.Client.List(ctx, &found)
	switch {
	case meta.IsNoMatchError(err) && p.agent.Namespace == "": // that there is no agent is a problem already
	case meta.IsNoMatchError(err):
		p.notServed("Peers of " + v1alpha1.GroupVersion.String())
	case err != nil:
		p.unread("peers", target.Errorf("read the Peers: %w", err))
	}
	p.objects.Peers = found.Items
	slices.SortFunc(found.Items, func(a, b v1alpha1.Peer) int { return cmp.Compare(a.Name, b.Name) })
	for i := range found.Items {
		p.addPeer(&found.Items[i])
	}
}

// addPeer shows a Peer, and as problems what is not as it should be.
func (p *part) addPeer(peer *v1alpha1.Peer) {
	state, why := stateOfPeer(peer)
	running := p.agent.Pod != nil
	if !running {
		state, why = Unknown, metav1.Condition{} // nobody has brought the status up to date
	}
	shown := state
	if c := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.PeerDrained); c != nil && state == Connected {
		shown, why = Drained, *c
	}
	p.cluster.Peers = append(p.cluster.Peers, Peer{
		ID: peer.Name, State: shown, Since: timeOf(why.LastTransitionTime.Time), Message: why.Message,
		Version: peer.Status.Version, TokenExpires: peer.Status.TokenExpires, Exports: peer.Status.Exports,
	})
	object := "Peer " + peer.Name
	switch {
	case peer.Spec.Removed:
		p.problem(object, "%s%s; when it is done, repeat: kubectl comity leave --id %s %s", Leaving, after(why.Message), peer.Name, p.cluster.Context)
		return
	case state == Unknown && running && p.now.Sub(peer.CreationTimestamp.Time) > connectTime:
		p.problem(object, "the agent has not set condition %s of the Peer yet", v1alpha1.PeerConnected)
	}
	for _, kind := range peerConditions {
		c := meta.FindStatusCondition(peer.Status.Conditions, kind)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		isEffect := kind == v1alpha1.PeerConnected && state == NotUsed // what is not accepted is not connected
		isPending := c.Status == metav1.ConditionUnknown && p.now.Sub(c.LastTransitionTime.Time) < connectTime
		if !isEffect && !isPending {
			problem := p.problem(object, "%s is %s (%s)%s", c.Type, c.Status, c.Reason, after(c.Message))
			problem.Reason = c.Reason
			if id := model.ClusterID(peer.Name); state != Connected && p.silent[id] == nil {
				p.silent[id] = problem
			}
		}
	}
}

// stateOfPeer is the state of the connection to a peer as one word: Connected, or why it is
// not; and the condition that says so, empty if there is none.
func stateOfPeer(peer *v1alpha1.Peer) (State, metav1.Condition) {
	find := func(kind string) metav1.Condition {
		return ptr.Deref(meta.FindStatusCondition(peer.Status.Conditions, kind), metav1.Condition{})
	}
	accepted, connected := find(v1alpha1.PeerAccepted), find(v1alpha1.PeerConnected)
	switch {
	case peer.Spec.Removed:
		return Leaving, find(v1alpha1.PeerRemoved)
	case connected.Status == metav1.ConditionTrue: // a refused change of the Peer leaves the former in use
		return Connected, metav1.Condition{LastTransitionTime: connected.LastTransitionTime}
	case accepted.Status == metav1.ConditionFalse:
		return NotUsed, accepted
	}
	return State(cmp.Or(connected.Reason, string(Unknown))), connected
}

// strangers reports the clusters that lists of imports name and that have no Peer: they
// are not read, and what was imported from them stays.
func (p *part) strangers() {
	for _, id := range sortedKeys(p.listed) {
		keys := p.listed[id]
		if id == p.agent.ID || slices.ContainsFunc(p.cluster.Peers, func(peer Peer) bool { return peer.ID == string(id) }) {
			continue
		}
		p.problem("Peer "+string(id), "there is no Peer; what is imported from the cluster stays (%s); join it again, or run kubectl comity leave --id %s %s",
			some(keys), id, p.cluster.Context)
	}
}

// lost reports the exports that a restore lost, one line for each cluster that publishes
// here. It reports whether the cluster is a hub: somebody publishes, and no agent runs.
func (p *part) lost(ctx context.Context, target *command.Target) (isHub bool) {
	published, isHub, err := confirm.Published(ctx, target.Client)
	if err != nil {
		p.unread("exports", target.Errorf("%w", err))
		return false
	}
	p.objects.Published = published
	byCluster := map[model.ClusterID][]types.NamespacedName{}
	for _, record := range published {
		if record.IsLost() && !slices.Contains(byCluster[record.From], record.Service()) {
			byCluster[record.From] = append(byCluster[record.From], record.Service())
		}
	}
	for _, id := range sortedKeys(byCluster) {
		p.problem("exports of cluster "+string(id), "Lost: their ServiceExports disappeared with a restore, and they stay published (%s); create these again, or run kubectl comity confirm lost --all --context %s",
			some(byCluster[id]), p.cluster.Context)
	}
	return isHub
}

// some is how many objects there are, and the first of them.
func some(keys []types.NamespacedName) string {
	if len(keys) == 1 {
		return keys[0].String()
	}
	return fmt.Sprintf("%d, such as %s", len(keys), slices.MinFunc(keys, model.CompareKeys))
}

// after is a text behind a colon; empty if there is none.
func after(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
