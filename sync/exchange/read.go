// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// What a member publishes for one export is in its shared exchange namespace or
// in the namespace for one reader, and for a moment in both while the audience
// of the export changes. The functions below are given what was read of each,
// the shared namespace first.

// Newest returns the record that counts. One that publishes an export counts before
// one that states its withdrawal, because an export whose audience changed is
// withdrawn from one namespace and published in the other. Of two that publish it,
// the one created last counts: the change of audience created it. Of two created in
// the same second, the last one given counts, which only this cluster can read. Nil
// records are skipped.
func Newest(records ...*exchangev1alpha1.ExportRecord) *exchangev1alpha1.ExportRecord {
	var newest *exchangev1alpha1.ExportRecord
	for _, r := range records {
		switch {
		case r == nil:
		case newest == nil, newest.Spec.Withdrawn && !r.Spec.Withdrawn:
			newest = r
		case newest.Spec.Withdrawn == r.Spec.Withdrawn && !r.CreationTimestamp.Before(&newest.CreationTimestamp):
			newest = r
		}
	}
	return newest
}

// MergeCopies returns the slice copies of all lists, sorted by name. The copies
// of both namespaces count, so that no endpoint is missing while the audience of
// an export changes. Of two with one name, the rule of Newest chooses.
func MergeCopies(lists ...[]*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	byName := map[string]*discoveryv1.EndpointSlice{}
	for _, s := range slices.Concat(lists...) {
		if other := byName[s.Name]; other == nil || !s.CreationTimestamp.Before(&other.CreationTimestamp) {
			byName[s.Name] = s
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
}

// MemberProblem says why record, the MemberRecord in the exchange of peer id (nil if
// there is none), is not that of the expected member of a set, with the UID that the Peer
// names, empty for any; "" if it is. Another id or set means that the kubeconfig leads to
// another cluster. Another UID means that another cluster took over the id (reused), whose
// exports must not replace those of the first one.
func MemberProblem(id model.ClusterID, set string, uid types.UID, record *exchangev1alpha1.MemberRecord) (message string, reused bool) {
	problem := func(format string, args ...any) string {
		return fmt.Sprintf("MemberRecord %s/%s", model.ExchangeNamespace(id), id) + fmt.Sprintf(format, args...)
	}
	if record == nil {
		return problem(": does not exist in the peer yet; remedy: check that Comity runs there with cluster id %q", id), false
	}
	spec := &record.Spec
	switch {
	case spec.ClusterID != string(id):
		return problem(", spec.clusterID: is %s; expected %q; remedy: correct the kubeconfig in the Secret of Peer %s",
			model.Quote(spec.ClusterID), id, id), false
	case spec.ClusterSet != set:
		return problem(", spec.clusterSet: is %s; expected %q; remedy: join clusters of one set only",
			model.Quote(spec.ClusterSet), set), false
	case !uidPattern.MatchString(string(spec.ClusterUID)):
		return problem(", spec.clusterUID: is %s; expected a UID; remedy: check Comity in cluster %s",
			model.Quote(string(spec.ClusterUID)), id), false
	case spec.ClusterUID != uid:
		return problem(", spec.clusterUID: is %s; expected %s, as in Peer %s; what was imported from it is kept; remedy: correct the Peer or the "+
			"kubeconfig, or, if the cluster was made again, accept it with kubectl comity join --replace",
			spec.ClusterUID, uid, id), true
	}
	return "", false
}

// Published is what is known of one other cluster about one namespace and name.
type Published struct {
	// Member is what is known of the member; only its ID, and Liveness, of a cluster
	// that is none.
	model.Member
	// Known is true of a member. Removed is true if its Peer says so.
	Known, Removed bool
	// Export is what it exports; nil if nothing, or nothing that is valid and accepted.
	Export *model.Export
	// Refusal is why what it exports is not imported whatever others export; nil if nothing
	// is refused.
	Refusal *model.Refusal
	// Verdict is what the policies of this cluster with stage Import answer to it; nil if there
	// are none, or if they were not asked.
	Verdict *decision.Verdict
	// Withdrawals are what it states of exports of this name.
	Withdrawals []model.Withdrawal
	// NotAccepted is true if its Peer does not accept exports of the namespace.
	NotAccepted bool
	// Accepted are the addresses that are accepted from it; nil if that is not known.
	Accepted *Filter
	// Namespace is the namespace there, as its NamespaceRecord has it.
	Namespace decision.PeerNamespace
	// Slices are what may be imported of its endpoints, Problems what is left out. A copy of
	// which nothing may be imported has no address type and no endpoints: it exists, so it
	// was not lost.
	Slices   []*discoveryv1.EndpointSlice
	Problems []model.Problem
}

// Drains are those of a cluster: what its Peer says, and what the cluster says of itself, if
// the Peer lets it: the value of annotation comity.dev/drained of its MemberRecord. A text
// that cannot be read drains nothing.
func Drains(peer *exchangev1alpha1.PeerSpec, self string) (out []model.Drain) {
	if peer.Drained != nil {
		out = append(out, model.Drain{Drained: *peer.Drained})
	}
	itself := model.Drain{Self: true}
	if !peer.IgnoreDrain && json.Unmarshal([]byte(self), &itself.Drained) == nil {
		out = append(out, itself)
	}
	return out
}
