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
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// Reasons for which a peer Secret is refused.
const (
	ReasonInvalidClusterID   = "InvalidClusterID"
	ReasonOwnClusterID       = "OwnClusterID"
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
	// config is nil if the kubeconfig was refused: the member exists, so nothing
	// imported from it may be deleted, but this Secret does not reach it.
	config *rest.Config
	// digest changes with the kubeconfig, rest with all of it but the token.
	digest, rest [sha256.Size]byte
}

// assign decides which Secret is used for which member. Of two with one id, the
// older is used: a new Secret must not be able to take over a member.
func assign(secrets []corev1.Secret, self model.ClusterID, set string) (claims []claim, refusals []refusal) {
	sorted := make([]*corev1.Secret, 0, len(secrets))
	for i := range secrets {
		s := &secrets[i]
		if _, isPeer := s.Labels[model.LabelClusterID]; isPeer && s.DeletionTimestamp == nil {
			sorted = append(sorted, s)
		}
	}
	slices.SortFunc(sorted, func(a, b *corev1.Secret) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	holders := map[model.ClusterID]*corev1.Secret{}
	for _, s := range sorted {
		id, no := identify(s, self, set, holders)
		if no != nil {
			refusals = append(refusals, *no)
			continue
		}
		holders[id] = s
		c := claim{id: id, secret: s, digest: sha256.Sum256(s.Data[kubeconfig.SecretKey])}
		config, f := kubeconfig.Sanitize(s.Data[kubeconfig.SecretKey])
		if f != nil {
			refusals = append(refusals, refusal{s, ReasonInvalidKubeconfig, fmt.Sprintf("Secret %s/%s, key %s: %s", s.Namespace, s.Name, kubeconfig.SecretKey, f)})
		}
		if c.config = config; config != nil {
			c.rest = sha256.Sum256(bytes.ReplaceAll(s.Data[kubeconfig.SecretKey], []byte(config.BearerToken), nil))
		}
		claims = append(claims, c)
	}
	return claims, refusals
}

func identify(s *corev1.Secret, self model.ClusterID, set string, holders map[model.ClusterID]*corev1.Secret) (model.ClusterID, *refusal) {
	where := fmt.Sprintf("Secret %s/%s", s.Namespace, s.Name)
	if got := s.Labels[model.LabelClusterSet]; got != set {
		return "", &refusal{s, ReasonWrongClusterSet, fmt.Sprintf("%s, label %s: is %q; expected %q, this cluster's set; remedy: correct the label, or delete the Secret",
			where, model.LabelClusterSet, got, set)}
	}
	id, err := model.ParseClusterID(s.Labels[model.LabelClusterID])
	if err != nil {
		return "", &refusal{s, ReasonInvalidClusterID, fmt.Sprintf("%s, label %s: %v; expected an id such as \"cluster-1\"; remedy: give the peer's id as its ClusterProperty %s has it",
			where, model.LabelClusterID, err, model.LabelClusterID)}
	}
	if id == self {
		return "", &refusal{s, ReasonOwnClusterID, fmt.Sprintf("%s, label %s: %q is this cluster's own id; expected another cluster's; remedy: delete the Secret, or give one of the two clusters another id",
			where, model.LabelClusterID, id)}
	}
	if older := holders[id]; older != nil {
		return "", &refusal{s, ReasonDuplicateClusterID, fmt.Sprintf("%s, label %s: %q is claimed by the older Secret %s already, which stays in use; expected one Secret for each cluster; remedy: delete one of the two",
			where, model.LabelClusterID, id, older.Name)}
	}
	return id, nil
}
