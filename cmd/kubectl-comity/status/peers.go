// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
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
	contacts, known := p.contacts(ctx, r, target)
	for _, secret := range secrets.Items {
		id := secret.Labels[model.LabelClusterID]
		if id == "" && secret.Name != model.ExchangeSecret {
			continue
		}
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

// hubID stands for the hub among the peers; no cluster can have it.
const hubID = "(hub)"

// passing are the reasons of warnings that no later event ends.
var passing = []string{"StoreRestored", "DeletionHeld"}

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

// contacts reads the agent's own metrics; known is false if they cannot be read.
func (p *part) contacts(ctx context.Context, r Reader, target *command.Target) (contacts map[string]State, known bool) {
	if p.agent.Pod == "" {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	text, err := r.Metrics(ctx, target, p.agent)
	if err != nil {
		p.problem("peers", "how the agent hears of its peers is not known: %v", err)
		return nil, false
	}
	return parseContacts(text), true
}

var (
	contactLine = regexp.MustCompile(`^comity_peer_contact\{(.*)\} 1$`)
	labelPair   = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// parseContacts gives the state of each peer from the text of metrics.
func parseContacts(text string) map[string]State {
	contacts := map[string]State{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		match := contactLine.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		labels := map[string]string{}
		for _, pair := range labelPair.FindAllStringSubmatch(match[1], -1) {
			labels[pair[1]] = pair[2]
		}
		contacts[cmp.Or(labels["peer"], labels["cluster"])] = State(labels["state"])
	}
	return contacts
}

// podMetrics reads the metrics of the leader through the API server, which
// works from wherever kubectl does.
func podMetrics(ctx context.Context, target *command.Target, in agent.Agent) (string, error) {
	port := int32(0)
	for _, p := range in.Container.Ports {
		if p.Name == "metrics" {
			port = p.ContainerPort
		}
	}
	if port == 0 {
		return "", target.Errorf("Pod %s/%s serves no metrics; expected a container port named metrics", in.Namespace, in.Pod)
	}
	address, err := agent.Forward(ctx, target, in.Namespace, in.Pod, int(port))
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	request.Close = true // The way there ends with ctx.
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", target.Errorf("read the metrics of Pod %s/%s: %w", in.Namespace, in.Pod, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", target.Errorf("read the metrics of Pod %s/%s: %s", in.Namespace, in.Pod, response.Status)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
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
