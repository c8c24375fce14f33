// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// metricsTimeout bounds reading the metrics of one agent.
const metricsTimeout = 10 * time.Second

// peers reads the state of the connection to each peer: whether its credential is still
// valid, what the agent's metrics say, and why and since when by the events.
func (p *part) peers(ctx context.Context, r Reader, target *command.Target) {
	secrets, err := target.Clientset.CoreV1().Secrets(p.agent.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		p.problem("peers", "read the peer Secrets: %v", target.Errorf("%w", err))
		return
	}
	events, err := target.Clientset.CoreV1().Events(p.agent.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Secret"})
	if err != nil {
		p.problem("peers", "read the events on peer Secrets: %v", target.Errorf("%w", err))
		events = &corev1.EventList{}
	}
	contacts, members, known := p.contacts(ctx, r, target)
	shown := map[string]bool{}
	for _, secret := range secrets.Items {
		id := peerID(secret, events.Items)
		if id == "" && secret.Name != model.ExchangeSecret {
			continue
		}
		shown[id] = true
		story := storyOf(events.Items, secret.Name)
		peer := Peer{ID: id, State: Unknown, Since: timeOf(story.since), Message: story.message}
		if contact, ok := contacts[id]; ok {
			peer.State = contact
		} else if known {
			peer.State = NotUsed
		} else if story.reason == string(Stale) || story.reason == string(Lost) {
			peer.State = State(story.reason)
		}
		if peer.State == Connected && story.warning {
			// Its heartbeat is read, and something else of it is not; the event says what.
			p.problem("peer "+peer.ID, "%s: %s", story.reason, story.message)
		}
		if peer.State == Connected && peer.Since == nil {
			peer.Since = p.undisturbed(secret)
		}
		p.token(&peer, secret, r.Now())
		switch {
		case id != "":
			p.addPeer(peer)
		case peer.State == Expired:
			// Of the hub nothing else is known than what is known of the peers in it.
			peer.ID = hubID
			p.addPeer(peer)
		}
	}
	p.missing(ctx, target, members, shown)
}

// peerID is the id of the peer that a Secret is for; empty if it is no peer's. A label
// may be missing because of a slip, which the agent reports in an event.
func peerID(secret corev1.Secret, events []corev1.Event) string {
	if id := secret.Labels[model.LabelClusterID]; id != "" {
		return id
	}
	if storyOf(events, secret.Name).reason != withoutID {
		return ""
	}
	return strings.TrimPrefix(secret.Name, "peer-")
}

// missing adds the members without a Secret, which the agent keeps for a while.
func (p *part) missing(ctx context.Context, target *command.Target, members []string, shown map[string]bool) {
	members = slices.DeleteFunc(slices.Clone(members), func(id string) bool { return shown[id] })
	if len(members) == 0 {
		return
	}
	events, err := target.Clientset.CoreV1().Events(p.agent.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Namespace"})
	if err != nil {
		p.problem("peers", "read the events on Namespace %s: %v", p.agent.Namespace, target.Errorf("%w", err))
		events = &corev1.EventList{}
	}
	for _, id := range members {
		about := slices.DeleteFunc(slices.Clone(events.Items), func(e corev1.Event) bool { return !strings.Contains(e.Message, "cluster "+id+" ") })
		story := storyOf(about, p.agent.Namespace)
		p.addPeer(Peer{ID: id, State: NotUsed, Since: timeOf(story.since), Message: cmp.Or(story.message, "there is no Secret for it; what was imported from it is kept for a while")})
	}
}

// undisturbed is from when a peer is connected that no event mentions: since it
// was joined, or since the leader is there, which would have written one.
func (p *part) undisturbed(secret corev1.Secret) *metav1.Time {
	joined := secret.CreationTimestamp
	if p.cluster.Since != nil && p.cluster.Since.After(joined.Time) {
		joined = *p.cluster.Since
	}
	return timeOf(joined.Time)
}

// hubID is the id of the hub among the peers; no cluster can have it.
const hubID = "(hub)"

// passing are the reasons of warnings that no later event ends.
var passing = []string{"StoreRestored", "DeletionHeld"}

// withoutID is the reason of the event on the Secret of a peer that has no valid id.
const withoutID = "InvalidClusterID"

// token says when the credential ends. A member that was off for longer than its
// tokens live cannot renew them.
func (p *part) token(peer *Peer, secret corev1.Secret, now time.Time) {
	config, fault := kubeconfig.Sanitize(secret.Data[join.KubeconfigKey])
	if fault != nil {
		peer.State, peer.Message = NotUsed, fault.String()
		return
	}
	claims, ok := kubeconfig.ReadToken(config.BearerToken)
	if !ok {
		return
	}
	expires := time.Unix(claims.Expires, 0)
	peer.TokenExpires = timeOf(expires)
	if expires.After(now) {
		return
	}
	peer.State, peer.Since = Expired, timeOf(expires)
	peer.Message = fmt.Sprintf("the token for it in Secret %s/%s expired at %s, because one of the two clusters was off for longer than its tokens live; run kubectl comity join with both contexts, which makes a new one",
		secret.Namespace, secret.Name, expires.UTC().Format(time.RFC3339))
}

func (p *part) addPeer(peer Peer) {
	switch {
	case peer.State == Connected:
		peer.Message = ""
	case peer.State == Unknown && p.agent.Pod == "":
		// That no agent runs is a problem already.
	default:
		p.problem("peer "+peer.ID, "%s%s", peer.State, prefixed(": ", peer.Message))
	}
	p.cluster.Peers = append(p.cluster.Peers, peer)
	slices.SortFunc(p.cluster.Peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// contacts reads the agent's own metrics: the liveness of the peers that it reads, and
// all that are members; known is false if the metrics cannot be read.
func (p *part) contacts(ctx context.Context, r Reader, target *command.Target) (contacts map[string]State, members []string, known bool) {
	if p.agent.Pod == "" {
		return nil, nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	text, err := r.Metrics(ctx, target, p.agent)
	if err != nil {
		p.problem("peers", "the state of the connections to the peers is not known: %v", err)
		return nil, nil, false
	}
	contacts, members = parseContacts(text)
	return contacts, members, true
}

var (
	contactLine = regexp.MustCompile(`^comity_peer_contact\{(.*)\} 1$`)
	memberLine  = regexp.MustCompile(`^comity_peer_synced\{(.*)\} [01]$`)
	labelPair   = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// parseContacts gives the state of each peer, and the members, from the text of
// metrics. A member without a state has no Secret that is used.
func parseContacts(text string) (contacts map[string]State, members []string) {
	contacts = map[string]State{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if match := memberLine.FindStringSubmatch(lines.Text()); match != nil {
			members = append(members, labelsOf(match[1])["peer"])
		}
		if match := contactLine.FindStringSubmatch(lines.Text()); match != nil {
			labels := labelsOf(match[1])
			contacts[cmp.Or(labels["peer"], labels["cluster"])] = State(labels["state"])
		}
	}
	return contacts, members
}

// labelsOf reads the labels of a line of metrics.
func labelsOf(text string) map[string]string {
	labels := map[string]string{}
	for _, pair := range labelPair.FindAllStringSubmatch(text, -1) {
		labels[pair[1]] = pair[2]
	}
	return labels
}

// story is what the events on a peer Secret say.
type story struct {
	// since is when the present state began, as far as events are kept.
	since           time.Time
	reason, message string
	warning         bool
}

// storyOf reads the events on a Secret in their order: a normal one ends what
// was wrong.
func storyOf(events []corev1.Event, secret string) story {
	var own []corev1.Event
	for _, event := range events {
		if event.InvolvedObject.Name == secret {
			own = append(own, event)
		}
	}
	slices.SortStableFunc(own, func(a, b corev1.Event) int { return latest(a).Compare(latest(b)) })
	var now story
	for _, event := range own {
		if slices.Contains(passing, event.Reason) {
			continue
		}
		if event.Type != corev1.EventTypeWarning {
			now = story{since: latest(event), reason: event.Reason}
			continue
		}
		if !now.warning {
			now = story{since: first(event), warning: true}
		}
		now.reason, now.message = event.Reason, event.Message
	}
	return now
}

func first(event corev1.Event) time.Time {
	if !event.EventTime.IsZero() {
		return event.EventTime.Time
	}
	return event.FirstTimestamp.Time
}

func latest(event corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	if !event.LastTimestamp.IsZero() {
		return event.LastTimestamp.Time
	}
	return first(event)
}
