// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// maxExamples is how many parts are named for each reason; the rest is counted. The
// limit is per reason, so that a thousand malformed addresses do not hide one that
// overlaps.
const maxExamples = 3

// maxMessage is the maximal length of a message, that of the note of an event.
const maxMessage = 1024

// reasonInvalid is the reason of a part that the EndpointSlice API does not allow.
const reasonInvalid = "Invalid"

// reasonTooLarge is the reason of endpoints for which a slice has no room.
const reasonTooLarge = "TooLarge"

// Dropped is a part of a peer's slice that was left out.
type Dropped struct {
	// Slice is the name of the published slice, shortened.
	Slice string
	// Field is its path in the slice, such as endpoints[3].addresses[0].
	Field string
	// Value is the value of the field, quoted and shortened.
	Value string
	// Reason is one word: an AddressProblem, TooLarge, or Invalid for any other part.
	Reason string
}

// Report lists what CleanSlice left out. The zero value is an empty report.
type Report struct {
	// Dropped are the first maxExamples parts of each reason, in the order of the
	// slices.
	Dropped []Dropped
	// Counts are the numbers of parts left out by reason, and Total is their sum.
	Counts map[string]int
	Total  int
}

func (r *Report) add(slice *discoveryv1.EndpointSlice, reason, value, format string, args ...any) {
	if r.count(reason, 1) > maxExamples {
		return
	}
	r.Dropped = append(r.Dropped, Dropped{
		Slice: model.OneLine(slice.Name, 64), Field: fmt.Sprintf(format, args...), Value: model.Quote(value), Reason: reason,
	})
}

// count adds n parts with this reason and returns the new count.
func (r *Report) count(reason string, n int) int {
	if r.Counts == nil {
		r.Counts = map[string]int{}
	}
	r.Counts[reason] += n
	r.Total += n
	return r.Counts[reason]
}

// Add adds the report on another slice to r.
func (r *Report) Add(other Report) {
	for _, d := range other.Dropped {
		examples := 0
		for i := range r.Dropped {
			if r.Dropped[i].Reason == d.Reason {
				examples++
			}
		}
		if examples < maxExamples {
			r.Dropped = append(r.Dropped, d)
		}
	}
	for reason, n := range other.Counts {
		r.count(reason, n)
	}
}

// Problems are what the reader of an import should know of the parts that were
// left out of the slices of cluster, at most one problem of each reason. The
// filter is the one that was used. The messages are bounded, the same for the same slices, and name no cluster but cluster:
// Others of each problem is empty, so cluster may be shown them.
func (r *Report) Problems(cluster model.ClusterID, filter Filter) []model.Problem {
	if r.Total == 0 {
		return nil
	}
	var out []model.Problem
	add := func(reason, message string) {
		out = append(out, model.Problem{Reason: reason, Cluster: cluster, Message: model.Bound(message, maxMessage)})
	}
	if n := r.Counts[string(AddressOverlap)]; n > 0 {
		add(model.ReasonAddressOverlap, fmt.Sprintf("%s of cluster %s %s in address ranges of this cluster (%s) and %s left out; "+
			"clusters that import from each other cannot have the same addresses, so give one of them other ranges: %s",
			plural(n, "endpoint address", "endpoint addresses"), cluster, verb(n, "lies", "lie"), r.overlapped(filter), verb(n, "is", "are"),
			r.examples(string(AddressOverlap))))
	}
	if n := r.Counts[string(AddressNotAccepted)]; n > 0 {
		add(model.ReasonAddressNotAccepted, fmt.Sprintf("%s of cluster %s %s left out, because %s: %s",
			plural(n, "endpoint address", "endpoint addresses"), cluster, verb(n, "is", "are"), notAccepted(cluster, filter.Accepted),
			r.examples(string(AddressNotAccepted))))
	}
	if n := r.Counts[reasonTooLarge]; n > 0 {
		add(model.ReasonLimitExceeded, fmt.Sprintf("%s of cluster %s %s only in part, because at most %d bytes and %d addresses of one are; split %s in cluster %s: %s",
			plural(n, "EndpointSlice", "EndpointSlices"), cluster, verb(n, "is imported", "are imported"), maxSliceBytes, maxSliceAddresses, verb(n, "it", "them"), cluster,
			r.examples(reasonTooLarge)))
	}
	special := []string{string(AddressOverlap), string(AddressNotAccepted), reasonTooLarge}
	if n := r.Total - r.sum(special); n > 0 {
		var counts, examples []string
		for _, reason := range slices.Sorted(maps.Keys(r.Counts)) {
			if !slices.Contains(special, reason) {
				counts = append(counts, fmt.Sprintf("%d %s", r.Counts[reason], reason))
				examples = append(examples, r.example(reason))
			}
		}
		add(model.ReasonInvalidEndpoints, fmt.Sprintf("%s of the EndpointSlices that cluster %s publishes %s left out (%s), because they are not valid; "+
			"correct the EndpointSlices in cluster %s: %s",
			plural(n, "part", "parts"), cluster, verb(n, "is", "are"), strings.Join(counts, ", "), cluster, strings.Join(examples, ", ")))
	}
	return out
}

// sum is the number of parts with one of the reasons.
func (r *Report) sum(reasons []string) int {
	n := 0
	for _, reason := range reasons {
		n += r.Counts[reason]
	}
	return n
}

// notAccepted names the CIDRs that are accepted from the cluster, and the field that
// lists them.
func notAccepted(cluster model.ClusterID, accepted []netip.Prefix) string {
	if len(accepted) == 0 {
		return fmt.Sprintf("no address of it is accepted here; list its pod CIDRs in spec.acceptedCIDRs of Peer %s", cluster)
	}
	texts := make([]string, len(accepted))
	for i, p := range accepted {
		texts[i] = p.String()
	}
	return fmt.Sprintf("only %s are accepted from it; if the addresses are those of its pods, add their CIDR to spec.acceptedCIDRs of Peer %s",
		model.Bound(strings.Join(texts, ","), 256), cluster)
}

// overlapped names the CIDRs of this cluster that contain the examples.
func (r *Report) overlapped(filter Filter) string {
	var ranges []string
	for _, d := range r.Dropped {
		ip, err := netip.ParseAddr(strings.Trim(d.Value, `"`))
		if d.Reason != string(AddressOverlap) || err != nil {
			continue
		}
		if use, prefix, found := filter.own(ip); found {
			ranges = append(ranges, use+" CIDR "+prefix.String())
		}
	}
	slices.Sort(ranges)
	return strings.Join(slices.Compact(ranges), ", ")
}

func (r *Report) examples(reason string) string {
	var out []string
	for _, d := range r.Dropped {
		if d.Reason == reason {
			out = append(out, d.String())
		}
	}
	return strings.Join(out, ", ")
}

func (r *Report) example(reason string) string {
	for _, d := range r.Dropped {
		if d.Reason == reason {
			return d.String()
		}
	}
	return ""
}

// String returns the value, the slice and the field, for a message.
func (d Dropped) String() string { return fmt.Sprintf("%s (%s, %s)", d.Value, d.Slice, d.Field) }

func plural(n int, one, many string) string { return fmt.Sprintf("%d %s", n, verb(n, one, many)) }

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
