// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// Reasons for which a peer Secret is refused.
const (
	ReasonInvalidClusterID   = "InvalidClusterID"
	ReasonOwnClusterID       = "OwnClusterID"
	ReasonClusterIDChanged   = "ClusterIDChanged"
	ReasonDuplicateClusterID = "DuplicateClusterID"
	ReasonWrongClusterSet    = "WrongClusterSet"
	ReasonInvalidKubeconfig  = "InvalidKubeconfig"
)

// refusal is one Secret that is not used, and why.
type refusal struct {
	secret  *corev1.Secret
	reason  string
	message string
}

// claim is the Secret that is used for one member.
type claim struct {
	id     model.ClusterID
	secret *corev1.Secret
	// config is nil if the Secret is refused: the member exists, so nothing imported
	// from it may be deleted, but this Secret does not reach it.
	config *rest.Config
	// refused is why config is nil.
	refused remote.Failure
	// digest changes with the kubeconfig, rest with all of it but the token.
	digest, rest [sha256.Size]byte
}

// equal reports whether c and other reach the member in the same way.
func (c claim) equal(other claim) bool { return c.digest == other.digest && c.refused == other.refused }

// unusable reports whether the Secret may not be used at all, not even with the
// connection that was made with an earlier kubeconfig of it.
func (c claim) unusable() bool {
	return c.refused.Reason != "" && c.refused.Reason != ReasonInvalidKubeconfig
}

// formerly is what is known of Secrets from before their present content was read.
// With it a Secret whose labels are wrong now is found to be that of a member.
type formerly struct {
	// inUse are the clusters of the Secrets that are used, and known to be theirs, by UID.
	inUse map[types.UID]model.ClusterID
	// named are the clusters that are members, or of which something is imported, by
	// the name that join gives to their Secrets.
	named map[string]model.ClusterID
}

// assignment says which Secret is used for which member.
type assignment struct {
	claims   []claim
	refusals []refusal
	// unidentified is a Secret that looks like a peer's and is refused, and of which it
	// is not known which peer's it is; empty if there is none. It may be that of any
	// member without a Secret.
	unidentified string
	// ownID are the Secrets that are refused because they have this cluster's own id, and
	// of which no member is known.
	ownID []*corev1.Secret
}

func (a *assignment) setUnidentified(secret *corev1.Secret) {
	a.unidentified = cmp.Or(a.unidentified, secret.Namespace+"/"+secret.Name)
}

// candidate is a Secret that may be a peer's.
type candidate struct {
	secret *corev1.Secret
	// id is the member; empty if that is not known.
	id model.ClusterID
	// refused is what is wrong with the labels; nil if nothing is.
	refused *refusal
}

// assign decides which Secret is used for which member. Of two with one id, the
// older is used: a new Secret must not be able to take over a member. A Secret that
// is refused still names its member, because a slip must not remove a member.
func assign(secrets []corev1.Secret, self model.ClusterID, set string, before formerly) assignment {
	var out assignment
	of := map[model.ClusterID][]candidate{}
	var ids []model.ClusterID
	for _, c := range candidates(secrets, self, set, before) {
		if c.id == "" {
			out.refusals = append(out.refusals, *c.refused)
			out.setUnidentified(c.secret)
			if c.refused.reason == ReasonOwnClusterID {
				out.ownID = append(out.ownID, c.secret)
			}
			continue
		}
		if of[c.id] == nil {
			ids = append(ids, c.id)
		}
		of[c.id] = append(of[c.id], c)
	}
	for _, id := range ids {
		used := choose(of[id], before)
		for _, c := range of[id] {
			switch {
			case c.refused != nil:
				out.refusals = append(out.refusals, *c.refused)
			case c.secret != used.secret:
				out.refusals = append(out.refusals, duplicate(c, used))
				out.setUnidentified(c.secret) // one of the two may have a wrong label
			}
		}
		claimed, refused := read(used)
		out.claims = append(out.claims, claimed)
		if refused != nil {
			out.refusals = append(out.refusals, *refused)
		}
	}
	return out
}

// choose returns which of the Secrets of one member is used: the oldest that is not
// refused. If the one in use is refused now, no other replaces it before it is
// corrected or deleted.
func choose(of []candidate, before formerly) candidate {
	for _, c := range of {
		if c.refused != nil && before.inUse[c.secret.UID] == c.id {
			return c
		}
	}
	if at := slices.IndexFunc(of, func(c candidate) bool { return c.refused == nil }); at >= 0 {
		return of[at]
	}
	return of[0]
}

// read reads the kubeconfig of a Secret, unless it is refused already.
func read(c candidate) (claim, *refusal) {
	data := c.secret.Data[kubeconfig.SecretKey]
	out := claim{id: c.id, secret: c.secret, digest: sha256.Sum256(data)}
	if c.refused != nil {
		out.refused = remote.Failure{Reason: c.refused.reason, Message: c.refused.message}
		return out, nil
	}
	config, fault := kubeconfig.Sanitize(data)
	if fault != nil {
		r := refusal{c.secret, ReasonInvalidKubeconfig, fmt.Sprintf("Secret %s/%s, key %s: %s", c.secret.Namespace, c.secret.Name, kubeconfig.SecretKey, fault)}
		out.refused = remote.Failure{Reason: r.reason, Message: r.message}
		return out, &r
	}
	out.config, out.rest = config, sha256.Sum256(bytes.ReplaceAll(data, []byte(config.BearerToken), nil))
	return out, nil
}

// candidates are the Secrets that are, were, or may be those of peers, oldest first.
func candidates(secrets []corev1.Secret, self model.ClusterID, set string, before formerly) []candidate {
	labeled := map[model.ClusterID]bool{}
	for i := range secrets {
		if id, err := model.ParseClusterID(secrets[i].Labels[model.LabelClusterID]); err == nil && secrets[i].DeletionTimestamp == nil {
			labeled[id] = true
		}
	}
	var out []candidate
	for i := range secrets {
		s := &secrets[i]
		was := before.inUse[s.UID]
		if was == "" && !labeled[before.named[s.Name]] {
			was = before.named[s.Name]
		}
		if s.DeletionTimestamp == nil && (was != "" || looksLikePeer(s)) {
			id, refused := identify(s, was, self, set)
			out = append(out, candidate{s, id, refused})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int {
		return cmp.Or(a.secret.CreationTimestamp.Compare(b.secret.CreationTimestamp.Time), cmp.Compare(a.secret.Name, b.secret.Name))
	})
	return out
}

// looksLikePeer reports whether somebody made s for a peer, as far as one of its
// labels and annotations shows.
func looksLikePeer(s *corev1.Secret) bool {
	if s.Name == model.ExchangeSecret {
		return false
	}
	_, id := s.Labels[model.LabelClusterID]
	_, set := s.Labels[model.LabelClusterSet]
	return id || set || s.Annotations[model.AnnotationClusterUID] != "" || s.Annotations[model.AnnotationAcceptedCIDRs] != ""
}

// identify returns the member that s is for, empty if that is not known, and what is
// wrong with its labels. A Secret that was that of a member remains that member's.
func identify(s *corev1.Secret, was, self model.ClusterID, set string) (model.ClusterID, *refusal) {
	where := fmt.Sprintf("Secret %s/%s", s.Namespace, s.Name)
	kept := "; what was imported from that peer is kept meanwhile"
	text, labeled := s.Labels[model.LabelClusterID]
	id, err := model.ParseClusterID(text)
	switch {
	case !labeled && was != "":
		return was, &refusal{s, ReasonInvalidClusterID, fmt.Sprintf("%s, label %s: is missing; expected %q, the peer that the Secret was for; remedy: set the label again, or remove the peer with kubectl comity leave%s",
			where, model.LabelClusterID, was, kept)}
	case !labeled:
		return "", &refusal{s, ReasonInvalidClusterID, fmt.Sprintf("%s, label %s: is missing, and other labels or annotations are those of a peer's Secret; expected the peer's id; remedy: set the label, or delete the Secret%s",
			where, model.LabelClusterID, kept)}
	case err != nil:
		return was, &refusal{s, ReasonInvalidClusterID, fmt.Sprintf("%s, label %s: %v; expected an id such as \"cluster-1\"; remedy: give the peer's id as its ClusterProperty %s has it%s",
			where, model.LabelClusterID, err, model.LabelClusterID, kept)}
	case id == self:
		return was, &refusal{s, ReasonOwnClusterID, fmt.Sprintf("%s, label %s: %q is this cluster's own id; expected another cluster's; remedy: if this cluster was started with the id of that peer, correct that (--cluster-id, or ClusterProperty %s); "+
			"otherwise delete the Secret, or give one of the two clusters another id%s", where, model.LabelClusterID, id, model.LabelClusterID, kept)}
	case was != "" && was != id:
		return was, &refusal{s, ReasonClusterIDChanged, fmt.Sprintf("%s, label %s: is %q; expected %q, the peer that the Secret was for; remedy: correct the label; for another peer, make another Secret with kubectl comity join%s",
			where, model.LabelClusterID, id, was, kept)}
	}
	if got := s.Labels[model.LabelClusterSet]; got != set {
		return id, &refusal{s, ReasonWrongClusterSet, fmt.Sprintf("%s, label %s: is %q; expected %q, this cluster's set; remedy: correct the label, or delete the Secret%s",
			where, model.LabelClusterSet, got, set, kept)}
	}
	return id, nil
}

// duplicate is the refusal of c because used is the Secret of the same member.
func duplicate(c, used candidate) refusal {
	why := "the older Secret %s already, which stays in use"
	if used.refused != nil {
		why = "Secret %s already, which was in use until it was refused"
	}
	return refusal{c.secret, ReasonDuplicateClusterID, fmt.Sprintf("Secret %s/%s, label %s: %q is claimed by "+why+"; expected one Secret for each cluster; remedy: delete one of the two",
		c.secret.Namespace, c.secret.Name, model.LabelClusterID, c.id, used.secret.Name)}
}
