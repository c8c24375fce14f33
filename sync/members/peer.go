// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"bytes"
	"fmt"
	"net/netip"
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// Reasons for which a Peer is refused; NamespaceReserved is that of a part of it. ReasonInvalidKubeconfig alone
// leaves the connection in use that an earlier kubeconfig made.
const (
	ReasonInvalidClusterID  = "InvalidClusterID"
	ReasonOwnClusterID      = "OwnClusterID"
	ReasonWrongClusterSet   = "WrongClusterSet"
	ReasonInvalidPeer       = "InvalidPeer"
	ReasonSecretMissing     = "SecretMissing"
	ReasonInvalidKubeconfig = "InvalidKubeconfig"
)

// refusals are the reasons for which nothing is read by the credential of a Peer.
var refusals = []string{ReasonInvalidClusterID, ReasonOwnClusterID, ReasonWrongClusterSet, ReasonInvalidPeer, ReasonSecretMissing, ReasonInvalidKubeconfig}

// because is a failure with a message as fmt.Sprintf makes it.
func because(reason, format string, args ...any) remote.Failure {
	return remote.Failure{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// claim is what a Peer and its Secret say.
type claim struct {
	peer *exchangev1alpha1.Peer
	// secret is nil if it is missing.
	secret *corev1.Secret
	// config is nil if the Peer or its kubeconfig is refused.
	config  *rest.Config
	refused remote.Failure
	// ignored is a part of the Peer without effect: an accepted namespace into which nothing
	// is imported all the same.
	ignored  remote.Failure
	accepted accepted
}

// accepted is what the administrator accepts from a peer.
type accepted struct {
	// known is false if the lists cannot be read; then the Peer is refused.
	known      bool
	cidrs      []netip.Prefix
	namespaces model.Namespaces
}

// refuses reports whether exports of namespace are known not to be accepted.
func (a accepted) refuses(namespace string) bool { return a.known && !a.namespaces.Contains(namespace) }

// unusable reports whether the peer is not read at all, not even by the connection that
// an earlier kubeconfig made.
func (c claim) unusable() bool {
	return c.refused.Reason != "" && c.refused.Reason != ReasonInvalidKubeconfig
}

// connectsAs reports whether c and other reach the peer in the same way.
func (c claim) connectsAs(other claim) bool {
	return bytes.Equal(c.kubeconfig(), other.kubeconfig()) && c.refused == other.refused && c.isOfSameCluster(other)
}

func (c claim) kubeconfig() []byte {
	if c.secret == nil {
		return nil
	}
	return c.secret.Data[kubeconfig.SecretKey]
}

func (c claim) isOfSameCluster(other claim) bool {
	return other.peer != nil && c.peer.Spec.ClusterUID == other.peer.Spec.ClusterUID
}

// tokenExpires is when the token in the Secret expires; nil if that is not known.
func (c claim) tokenExpires() *metav1.Time {
	if c.config == nil {
		return nil
	}
	token, ok := kubeconfig.ReadToken(c.config.BearerToken)
	if !ok {
		return nil
	}
	return ptr.To(metav1.Unix(token.Expires, 0).Rfc3339Copy())
}

// readPeer reads a Peer that is that of another cluster by its name.
func (o *Options) readPeer(peer *exchangev1alpha1.Peer, secret *corev1.Secret) claim {
	out := claim{peer: peer, secret: secret}
	out.accepted, out.refused = readAccepted(&peer.Spec)
	switch {
	case out.refused.Reason != "":
	case peer.Spec.ClusterUID == "":
		out.refused = because(ReasonInvalidPeer, "spec.clusterUID is empty; expected the UID of Namespace kube-system of cluster %s; remedy: run kubectl comity join again", peer.Name)
	case peer.Spec.ClusterSet != o.ClusterSet:
		out.refused = because(ReasonWrongClusterSet, "spec.clusterset is %s; expected %q, the clusterset of this cluster; remedy: correct one of them",
			model.Quote(peer.Spec.ClusterSet), o.ClusterSet)
	case secret == nil:
		out.refused = because(ReasonSecretMissing, "spec.kubeconfigSecret: Secret %s/%s does not exist; remedy: correct the name, or run kubectl comity join again",
			o.Namespace, model.OneLine(peer.Spec.KubeconfigSecret, 64))
	default:
		config, err := kubeconfig.Sanitize(out.kubeconfig())
		if out.config = config; err != nil {
			out.refused = because(ReasonInvalidKubeconfig, "Secret %s/%s, key %s: %s", secret.Namespace, secret.Name, kubeconfig.SecretKey, err)
		}
	}
	if out.refused.Reason != "" {
		out.refused = because(out.refused.Reason, "Peer %[1]s, %[2]s; what was imported from cluster %[1]s is kept meanwhile", peer.Name, out.refused.Message)
	}
	for _, name := range out.accepted.namespaces {
		if exchange.ReservedNamespace(name) || name == o.Namespace {
			out.ignored = because(model.ReasonNamespaceReserved, "Peer %s, spec.acceptedNamespaces: %s is reserved, and nothing is imported into it; remedy: remove it", peer.Name, model.Quote(name))
			break
		}
	}
	return out
}

// readAccepted reads the lists of spec. The schema validates them; one that cannot be
// read all the same is not known, because a part of it is not what was meant.
func readAccepted(spec *exchangev1alpha1.PeerSpec) (out accepted, refused remote.Failure) {
	cidrs, err := model.ParsePrefixes(spec.AcceptedCIDRs)
	if err != nil {
		return accepted{}, because(ReasonInvalidPeer, "spec.acceptedCIDRs: %v; remedy: correct it", err)
	}
	out = accepted{known: true, cidrs: cidrs}
	if spec.AcceptedNamespaces != nil {
		out.namespaces = append(model.Namespaces{}, *spec.AcceptedNamespaces...)
	}
	for _, pattern := range out.namespaces {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			return accepted{}, because(ReasonInvalidPeer, "spec.acceptedNamespaces: %s is not a namespace or a glob such as \"team-*\"; remedy: correct it", model.Quote(pattern))
		}
	}
	return out, remote.Failure{}
}

// misnamed is why a Peer can be that of no other cluster; the zero value if it can.
func (o *Options) misnamed(peer *exchangev1alpha1.Peer) remote.Failure {
	if _, err := model.ParseClusterID(peer.Name); err != nil {
		return because(ReasonInvalidClusterID, "Peer %s, metadata.name: %v; remedy: delete the Peer, and run kubectl comity join", peer.Name, err)
	}
	if peer.Name != string(o.Self) {
		return remote.Failure{}
	}
	return because(ReasonOwnClusterID, "Peer %s, metadata.name: is this cluster's own id; remedy: if that is wrong, correct it (--cluster-id, or ClusterProperty %s); otherwise delete the Peer", peer.Name, model.LabelClusterID)
}
