// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// Reasons for which an annotation of a peer Secret is not used.
const (
	ReasonInvalidAcceptedCIDRs = "InvalidAcceptedCIDRs"
	ReasonInvalidConfirmation  = "InvalidConfirmation"
)

// maxAccepted bounds the list that every address is compared with.
const maxAccepted = 256

// readAnnotations applies the annotations and labels of the Secret. They take effect
// at once, on the connection that is in use.
func (s *Set) readAnnotations(m *member, secret *corev1.Secret, after *followUp) {
	before := m.secret
	m.secret = secret
	accepted, err := parseAccepted(secret.Annotations[model.AnnotationAcceptedCIDRs])
	s.fault(m, model.AnnotationAcceptedCIDRs, ReasonInvalidAcceptedCIDRs, err)
	if !slices.Equal(m.accepted, accepted) || !maps.Equal(before.Labels, secret.Labels) {
		after.members = append(after.members, m.id)
	}
	m.accepted = accepted

	confirmed, err := parseConfirmation(secret.Annotations[model.AnnotationConfirmDeletions])
	s.fault(m, model.AnnotationConfirmDeletions, ReasonInvalidConfirmation, err)
	if keys := m.guard.Confirm(confirmed); len(keys) > 0 {
		s.opts.Log.Info("held deletions are confirmed", "cluster", m.id, "count", len(keys))
		after.keys = append(after.keys, keys...)
	}

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

// parseAccepted reads prefixes separated by commas; none if any cannot be read,
// because a part of a mistyped list is not what was meant.
func parseAccepted(text string) ([]netip.Prefix, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	items := strings.Split(text, ",")
	if len(items) > maxAccepted {
		return nil, fmt.Errorf("lists %d ranges; expected at most %d; no address of the peer is accepted until it is corrected; remedy: give fewer, wider ranges", len(items), maxAccepted)
	}
	out := make([]netip.Prefix, 0, len(items))
	for i, item := range items {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(item))
		if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("item %d, %q, is no CIDR; expected address ranges separated by commas, such as \"10.1.0.0/16,fd00:1::/48\", with no bit set beyond the prefix; "+
				"no address of the peer is accepted until it is corrected; remedy: correct that item", i+1, model.Bound(item, 64))
		}
		out = append(out, prefix)
	}
	return out, nil
}

// parseConfirmation reads the time up to which vanished exports are meant to be
// gone; zero if there is none.
func parseConfirmation(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	then, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no time; expected RFC 3339, such as \"2026-01-02T15:04:05Z\"; no deletion is confirmed until it is corrected; remedy: correct it",
			model.Bound(text, 64))
	}
	return then, nil
}
