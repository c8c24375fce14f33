// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// The words of AnnotationTiers.
const (
	tierSelf       = "self"
	tierRest       = "*"
	tierNone       = "none"
	sameAsImporter = "@SameAsImporter@"
)

// MaxTiersBytes bounds the value of AnnotationTiers, maxTiers how many selectors it has
// before the last tier (KEP-5939).
const (
	MaxTiersBytes = 2048
	maxTiers      = 16
)

// ReasonTiersConflict is the reason of Conflict that KEP-5939 has for exports with different
// tiers.
const ReasonTiersConflict mcsv1beta1.ServiceExportConditionReason = "ClusterSelectorsConflict"

// Tiers say which source clusters an import uses before which others. The zero value is no
// tiers. Labels are those that the administrator of the importing cluster gives to a Peer or
// to that cluster itself, never what a member says of itself: its claim must not attract
// traffic.
type Tiers struct {
	selectors []tierSelector
	// last is tierRest or tierNone.
	last string
}

// tierSelector selects source clusters: the importing one, or those with all of the labels.
type tierSelector struct {
	self   bool
	labels map[string]string
}

// ParseTiers reads the value of AnnotationTiers. The error says which tier is wrong and what
// was expected, not where the value came from.
func ParseTiers(text string) (Tiers, error) {
	if len(text) > MaxTiersBytes {
		return Tiers{}, fmt.Errorf("the value has %d bytes; expected at most %d", len(text), MaxTiersBytes)
	}
	parts := Map(strings.Split(text, ";"), strings.TrimSpace)
	last := len(parts) - 1
	if parts[last] != tierRest && parts[last] != tierNone {
		return Tiers{}, fmt.Errorf("the last tier is %s; expected %s (all other clusters) or %s (no other cluster), as in \"self; *\"", Quote(parts[last]), tierRest, tierNone)
	}
	if last > maxTiers {
		return Tiers{}, fmt.Errorf("there are %d tiers before the last one; expected at most %d", last, maxTiers)
	}
	t := Tiers{last: parts[last]}
	for i, part := range parts[:last] {
		selector, err := parseTier(part)
		if err != nil {
			return Tiers{}, fmt.Errorf("tier %d is %s, %w", i+1, Quote(part), err)
		}
		t.selectors = append(t.selectors, selector)
	}
	return t, nil
}

func parseTier(text string) (tierSelector, error) {
	switch text {
	case tierSelf:
		return tierSelector{self: true}, nil
	case tierRest, tierNone:
		return tierSelector{}, errors.New("which can only be the last one")
	}
	out := map[string]string{}
	for term := range strings.SplitSeq(text, ",") {
		key, value, has := strings.Cut(strings.TrimSpace(term), "=")
		if _, twice := out[key]; twice {
			return tierSelector{}, fmt.Errorf("and has label %s twice", Quote(key))
		}
		isValue := value == sameAsImporter || len(validation.IsValidLabelValue(value)) == 0
		if !has || len(validation.IsQualifiedName(key)) > 0 || value == "" || !isValue {
			return tierSelector{}, fmt.Errorf("of which %s is no label; expected self, or labels such as \"region=eu,tier=%s\"", Quote(term), sameAsImporter)
		}
		out[key] = value
	}
	return tierSelector{labels: out}, nil
}

// Exist reports whether there are tiers.
func (t Tiers) Exist() bool { return t.last != "" }

// Texts are the tiers in order, each as its value has it; none if there are no tiers.
func (t Tiers) Texts() []string {
	if !t.Exist() {
		return nil
	}
	var out []string
	for _, s := range t.selectors {
		text := tierSelf
		if !s.self {
			text = strings.Join(Map(slices.Sorted(maps.Keys(s.labels)), func(key string) string { return key + "=" + s.labels[key] }), ",")
		}
		out = append(out, text)
	}
	return append(out, t.last)
}

// String is the value in one form, which ParseTiers reads; empty if there are no tiers.
func (t Tiers) String() string { return strings.Join(t.Texts(), "; ") }

// ClusterLabels are a cluster with the labels that the administrator of the importing cluster
// gives it. Known is false if these are not known, because its Peer is missing.
type ClusterLabels struct {
	ID     ClusterID
	Labels map[string]string
	Known  bool
}

// value is that of a label. The id is a label of every cluster, as join sets it on Peers.
func (c ClusterLabels) value(key string) string {
	if key == LabelClusterID {
		return string(c.ID)
	}
	return c.Labels[key]
}

// TierOf is the tier of a source in the importing cluster self, from 0; false if it is in
// none. A source of which the labels are not known is in the last tier that it may be in:
// what was imported of it is kept.
func (t Tiers) TierOf(source, self ClusterLabels) (int, bool) {
	place, found := len(t.selectors), t.last == tierRest
	for i, s := range t.selectors {
		switch {
		case s.self && source.ID != self.ID:
		case s.self || source.Known && s.matches(source, self):
			return i, true
		case !source.Known && !found:
			place = i
		}
	}
	return place, found || place < len(t.selectors)
}

func (s tierSelector) matches(source, self ClusterLabels) bool {
	for key, want := range s.labels {
		if want == sameAsImporter {
			want = self.value(key)
		}
		if want == "" || source.value(key) != want {
			return false
		}
	}
	return true
}

// Unset are the labels that the tiers compare with those of the importing cluster self, and
// that it does not have, sorted: a selector with one of them selects nothing.
func (t Tiers) Unset(self ClusterLabels) []string {
	keys := sets.New[string]()
	for _, s := range t.selectors {
		for key, value := range s.labels {
			if value == sameAsImporter && self.value(key) == "" {
				keys.Insert(key)
			}
		}
	}
	return sets.List(keys)
}

// TiersInForce is how the tiers of an import apply now.
type TiersInForce struct {
	// Tiers are their texts.
	Tiers []string
	// Serving is the tier whose sources are used, from 0, and From are these, sorted; -1 if
	// no source of any tier is available.
	Serving int
	From    []ClusterID
	// Unordered is true if all tiers serve at once.
	Unordered bool
	// Limit is why the tiers do not apply as they say; empty if they do.
	Limit string
}

// String says which tier serves, from which clusters.
func (t *TiersInForce) String() string {
	text := "no cluster of any tier has a ready endpoint"
	switch {
	case t.Unordered:
		text = "tiers have no order"
	case t.Serving >= 0:
		text = fmt.Sprintf("tier %d of %d (%s) serves, from %s", t.Serving+1, len(t.Tiers), t.Tiers[t.Serving], Join(t.From, ", "))
	}
	if t.Limit != "" {
		text += "; " + t.Limit
	}
	return text
}

// Traffic is how stock kube-proxy and CoreDNS may use the endpoints of one source cluster of
// an import. It is decided for the import in one place, from lost and drained clusters and
// from tiers, and it is all that is written of them: conditions and zone hints of endpoints.
type Traffic int

const (
	// Served endpoints have the conditions that their cluster publishes. In an import with
	// tiers they have a hint to a zone that does not exist here, so that they are used as soon
	// as no Preferred endpoint is ready.
	Served Traffic = iota
	// Preferred endpoints are also hinted to the zones of this cluster. kube-proxy uses only
	// these while one of them is ready.
	Preferred
	// LastResort endpoints are serving, terminating and not ready, so that kube-proxy uses
	// them only where no other endpoint is ready. Where nothing before them is ready they
	// stay ready: DNS and gateways use no others.
	LastResort
	// Unanswered endpoints are those of a lost cluster: like LastResort, and after it.
	Unanswered
	// Withheld endpoints are not ready, and not used by anyone.
	Withheld
	// Omitted endpoints are not written at all.
	Omitted
)

// IsReady reports whether an endpoint is ready. It follows the API: unset means ready.
func IsReady(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) }
