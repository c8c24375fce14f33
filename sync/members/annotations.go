// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// Reasons for which an annotation of a peer Secret is not used.
const (
	ReasonInvalidAcceptedCIDRs      = "InvalidAcceptedCIDRs"
	ReasonInvalidAcceptedNamespaces = "InvalidAcceptedNamespaces"
	ReasonInvalidConfirmation       = "InvalidConfirmation"
)

// readAnnotations applies the annotations and labels of the Secret. They take effect
// at once, on the connection that is in use. The labels of a Secret that is refused
// may be a slip, and do not.
func (s *Set) readAnnotations(m *member, c claim, after *followUp) {
	before, secret := m.secret, c.secret
	m.secret = secret
	if !c.unusable() && !maps.Equal(m.properties, secret.Labels) {
		m.properties = secret.Labels
		after.members = append(after.members, m.id)
	}
	s.readAccepted(m, secret, after)

	s.readConfirmation(m, secret, after)

	// After the annotation was removed, or the Secret replaced, the id may belong to
	// another cluster.
	now := recordedUID(secret)
	if now != m.recorded || before.UID != secret.UID {
		m.recorded, m.uid = now, now
		for _, l := range m.connections() {
			after.pins = append(after.pins, pin{l.Connection, m.uid})
		}
	}
}

// confirmation is what a Secret confirmed when its annotation last changed.
type confirmation struct {
	text string
	upTo time.Time
	err  error
}

// readConfirmation ends the holds that the annotation confirms. A time to come counts as
// the time at which it is read first: what goes missing later is not confirmed by it,
// however often the Secret changes until then.
func (s *Set) readConfirmation(m *member, secret *corev1.Secret, after *followUp) {
	if text, now := secret.Annotations[model.AnnotationConfirmDeletions], s.opts.Clock.Now(); text != m.confirmation.text {
		upTo, err := parseConfirmation(text, now)
		if upTo.After(now) {
			upTo = now
		}
		m.confirmation = confirmation{text, upTo, err}
	}
	s.fault(m, model.AnnotationConfirmDeletions, ReasonInvalidConfirmation, m.confirmation.err)
	if keys := slices.Concat(m.guard.Confirm(m.confirmation.upTo), m.holds.confirm(m.confirmation.upTo)); len(keys) > 0 {
		s.opts.Log.Info("deletions that were on hold are confirmed", "cluster", m.id, "count", len(keys))
		after.keys = append(after.keys, keys...)
	}
}

// fault reports an annotation that cannot be read, once until that changes.
func (s *Set) fault(m *member, annotation, reason string, err error) {
	if err == nil {
		delete(m.faults, annotation)
		delete(s.pending, topic{m.secret.UID, annotation})
		return
	}
	message := fmt.Sprintf("Secret %s/%s, annotation %s: %v", m.secret.Namespace, m.secret.Name, annotation, err)
	if m.faults[annotation].Message == message {
		return
	}
	m.faults[annotation] = remote.Failure{Reason: reason, Message: message}
	s.opts.Log.Info("annotation refused", "cluster", m.id, "reason", reason, "message", message)
	s.event(m.secret, annotation, corev1.EventTypeWarning, reason, message)
}

// pinCluster makes the first cluster that was read the only one that may be the
// peer, and returns the connections to restrict to it.
func (s *Set) pinCluster(m *member) (pins []pin) {
	if !m.readable {
		return nil
	}
	if m.uid == "" {
		if m.uid = m.active.ClusterUID(); m.uid == "" {
			return nil
		}
		for _, l := range m.connections() {
			pins = append(pins, pin{l.Connection, m.uid})
		}
	}
	if m.recorded == "" {
		select {
		case s.unrecorded <- struct{}{}:
		default:
		}
	}
	return pins
}

// recordedUID is the UID of the cluster in a Secret; empty if there is none.
func recordedUID(secret *corev1.Secret) types.UID {
	return types.UID(secret.Annotations[model.AnnotationClusterUID])
}

// maxAhead is how far in the future a confirmation may be, because of clocks that
// differ.
const maxAhead = time.Hour

// parseConfirmation reads the time up to which missing exports are meant to be gone;
// zero if there is none.
func parseConfirmation(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	const remedy = "no deletion is confirmed until it is corrected; remedy: give the time of now, with date -u +%Y-%m-%dT%H:%M:%SZ"
	then, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time; expected RFC 3339, such as \"2026-01-02T15:04:05Z\"; %s", model.Bound(text, 64), remedy)
	}
	if then.Sub(now) > maxAhead {
		return time.Time{}, fmt.Errorf("%q is in the future; expected a time that is at most %s ahead; %s", model.Bound(text, 64), maxAhead, remedy)
	}
	return then, nil
}
