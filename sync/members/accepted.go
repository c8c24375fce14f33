// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

// maxAccepted bounds the list that every address is compared with.
const maxAccepted = 256

// accepted is what the local administrator accepts from a peer. A list that cannot be
// read changes nothing: the one before it holds. Without one before it, as after a
// restart, the list is not known and the peer is not read, so that what was imported
// from it stays.
type accepted struct {
	cidrs           []netip.Prefix
	cidrsKnown      bool
	namespaces      model.Namespaces
	namespacesKnown bool
}

func (a accepted) equal(b accepted) bool {
	return a.cidrsKnown == b.cidrsKnown && slices.Equal(a.cidrs, b.cidrs) && a.namespacesKnown == b.namespacesKnown &&
		(a.namespaces == nil) == (b.namespaces == nil) && slices.Equal(a.namespaces, b.namespaces)
}

// known reports whether all of it is known.
func (a accepted) known() bool { return a.cidrsKnown && a.namespacesKnown }

// refuses reports whether exports of namespace are known not to be accepted.
func (a accepted) refuses(namespace string) bool {
	return a.namespacesKnown && !a.namespaces.Contains(namespace)
}

// readAccepted applies the lists in the annotations of the Secret of m.
func (s *Set) readAccepted(m *member, secret *corev1.Secret, after *followUp) {
	before := m.accepted
	cidrs, err := parseAccepted(secret.Annotations[model.AnnotationAcceptedCIDRs])
	s.fault(m, model.AnnotationAcceptedCIDRs, ReasonInvalidAcceptedCIDRs, err)
	if err == nil {
		m.accepted.cidrs, m.accepted.cidrsKnown = cidrs, true
	}

	namespaces, err := parseAcceptedNamespaces(secret)
	if err == nil {
		m.accepted.namespaces, m.accepted.namespacesKnown = namespaces, true
		err = s.reserved(namespaces)
	}
	s.fault(m, model.AnnotationAcceptedNamespaces, ReasonInvalidAcceptedNamespaces, err)

	if !m.accepted.equal(before) {
		after.members = append(after.members, m.id)
	}
}

// untilCorrected is what holds while a list cannot be read.
const untilCorrected = "until it is corrected, the list that was read before it remains in force; without one, the peer is not read and what was imported from it stays"

// parseAccepted reads prefixes separated by commas; none if any cannot be read,
// because a part of a mistyped list is not what was meant.
func parseAccepted(text string) ([]netip.Prefix, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	items := strings.Split(text, ",")
	if len(items) > maxAccepted {
		return nil, fmt.Errorf("lists %d ranges; expected at most %d; %s; remedy: give fewer, wider ranges", len(items), maxAccepted, untilCorrected)
	}
	out := make([]netip.Prefix, 0, len(items))
	for i, item := range items {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(item))
		if err != nil || prefix != prefix.Masked() || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("item %d, %q, is not a CIDR; expected address ranges separated by commas, such as \"10.1.0.0/16,fd00:1::/48\", with no bit set beyond the prefix; "+
				"%s; remedy: correct that item", i+1, model.Bound(item, 64), untilCorrected)
		}
		out = append(out, prefix)
	}
	return out, nil
}

// parseAcceptedNamespaces reads the namespaces that are accepted; nil, which stands for
// all, without the annotation.
func parseAcceptedNamespaces(secret *corev1.Secret) (model.Namespaces, error) {
	text, set := secret.Annotations[model.AnnotationAcceptedNamespaces]
	if !set {
		return nil, nil
	}
	namespaces, err := model.ParseNamespaces(text)
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, untilCorrected)
	}
	return namespaces, nil
}

// reserved names an accepted namespace into which nothing is imported all the same.
func (s *Set) reserved(namespaces model.Namespaces) error {
	for i, name := range namespaces {
		if exchange.ReservedNamespace(name) || name == s.opts.Namespace {
			return fmt.Errorf("item %d, %q, is reserved, and nothing is imported into it; expected namespaces of users; the rest of the list applies; remedy: remove that item", i+1, name)
		}
	}
	return nil
}
