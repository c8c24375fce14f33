// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// Connect makes a and b peers of each other. Everything is validated, and both
// clusters are looked at, before the first write; what stands already stays, so
// that repeating it is free and finishes what an earlier run began. A
// credential is kept while the API server accepts it and more than half of its
// lifetime is left. Errors name cluster, object and remedy.
func Connect(ctx context.Context, a, b Cluster, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	memberA, err := open(a, opts)
	if err != nil {
		return err
	}
	memberB, err := open(b, opts)
	if err != nil {
		return err
	}
	if err := validatePair(memberA.Cluster, memberB.Cluster); err != nil {
		return err
	}
	if err := distinct(ctx, memberA, memberB); err != nil {
		return err
	}
	pairs := [][2]*member{{memberA, memberB}, {memberB, memberA}}
	for _, pair := range pairs {
		if err := pair[0].preflight(ctx, pair[1].ID); err != nil {
			return fmt.Errorf("cluster %s: %w", pair[0].ID, err)
		}
	}
	for _, pair := range pairs {
		if err := pair[0].admit(ctx, pair[1].Cluster); err != nil {
			return fmt.Errorf("cluster %s: %w", pair[0].ID, err)
		}
	}
	for _, pair := range pairs {
		if err := pair[0].trust(ctx, pair[1]); err != nil {
			return fmt.Errorf("cluster %s: %w", pair[0].ID, err)
		}
	}
	return nil
}

// distinct refuses two ways to one cluster, which would make it its own peer.
func distinct(ctx context.Context, a, b *member) error {
	var ids [2]string
	for i, m := range []*member{a, b} {
		var ns corev1.Namespace
		if err := m.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &ns); err != nil {
			return fmt.Errorf("cluster %s: %s cannot be read with the access given: %w", m.ID, m.RESTConfig.Host, err)
		}
		ids[i] = string(ns.UID)
	}
	if ids[0] == ids[1] {
		return fmt.Errorf("clusters %s and %s are one and the same (%s and %s); give the access of two clusters",
			a.ID, b.ID, a.RESTConfig.Host, b.RESTConfig.Host)
	}
	return nil
}

// preflight refuses what Connect would otherwise take over: a namespace or a
// Secret that somebody else made under the same name.
func (m *member) preflight(ctx context.Context, peer model.ClusterID) error {
	objects, err := Objects(m.Cluster, Cluster{ID: peer, Set: m.Set})
	if err != nil {
		return err
	}
	for _, object := range objects {
		wanted, ok := object.(*corev1.Namespace)
		if !ok {
			continue
		}
		var found corev1.Namespace
		if err := m.client.Get(ctx, client.ObjectKeyFromObject(wanted), &found); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("read Namespace %s: %w", wanted.Name, err)
		}
		if found.DeletionTimestamp != nil {
			return fmt.Errorf("namespace %s is being deleted; wait until it is gone, then join again", wanted.Name)
		}
		for _, key := range []string{model.LabelExchangeFrom, model.LabelExchangeTo} {
			if found.Labels[key] != wanted.Labels[key] {
				return fmt.Errorf("namespace %s exists with label %s=%q, expected %q, so it is not the exchange namespace that peers may read; remove it or choose another cluster id",
					wanted.Name, key, found.Labels[key], wanted.Labels[key])
			}
		}
	}
	return m.preflightSecrets(ctx, peer)
}

func (m *member) preflightSecrets(ctx context.Context, peer model.ClusterID) error {
	var named corev1.Secret
	key := client.ObjectKey{Namespace: m.Namespace, Name: PeerName(peer)}
	err := m.client.Get(ctx, key, &named)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Secret %s: %w", key, err)
	}
	if err == nil && named.Labels[model.LabelClusterID] != string(peer) {
		return fmt.Errorf("the Secret %s exists and is not that of peer %s (label %s is %q); rename or delete it",
			key, peer, model.LabelClusterID, named.Labels[model.LabelClusterID])
	}
	var claims corev1.SecretList
	if err := m.client.List(ctx, &claims, client.InNamespace(m.Namespace), client.MatchingLabels{model.LabelClusterID: string(peer)}); err != nil {
		return fmt.Errorf("list the Secrets of peers in namespace %s: %w", m.Namespace, err)
	}
	for i := range claims.Items {
		if name := claims.Items[i].Name; name != key.Name {
			return fmt.Errorf("the Secret %s/%s claims the id %s already, and no id may be claimed twice; delete it or give the new peer another id",
				m.Namespace, name, peer)
		}
	}
	return nil
}

// admit applies what lets peer read this member.
func (m *member) admit(ctx context.Context, peer Cluster) error {
	objects, err := Objects(m.Cluster, peer)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := m.apply(ctx, object, ""); err != nil {
			return err
		}
	}
	return nil
}

// trust stores the credential for peer in this member, unless a good one is there.
func (m *member) trust(ctx context.Context, peer *member) error {
	var existing corev1.Secret
	key := client.ObjectKey{Namespace: m.Namespace, Name: PeerName(peer.ID)}
	if err := m.client.Get(ctx, key, &existing); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Secret %s: %w", key, err)
	}
	kubeconfig := existing.Data[KubeconfigKey]
	keep, err := peer.accepts(ctx, m.ID, kubeconfig)
	if err != nil {
		return err
	}
	note := ""
	if !keep {
		token, expires, err := peer.issue(ctx, m.ID)
		if err != nil {
			return err
		}
		if kubeconfig, err = writeKubeconfig(m.ID, peer.Cluster, token); err != nil {
			return fmt.Errorf("write the kubeconfig for %s: %w", peer.ID, err)
		}
		note = "new credential, valid until " + expires.UTC().Format(time.RFC3339)
	}
	accepted := existing.Annotations[AnnotationAcceptedCIDRs]
	if m.AcceptedCIDRs != nil {
		accepted = formatCIDRs(m.AcceptedCIDRs)
	}
	wanted := peerSecret(m.Cluster, peer.Cluster, kubeconfig, accepted)
	// The agent renews the token and then owns that field; applying the same
	// value again would still write the new ownership.
	if keep && contains(existing.Labels, wanted.Labels) && accepted == existing.Annotations[AnnotationAcceptedCIDRs] {
		m.report(wanted, Unchanged, "")
		return nil
	}
	return m.apply(ctx, wanted, note)
}

// accepts reports whether kubeconfig still lets holder in here, for long enough.
func (m *member) accepts(ctx context.Context, holder model.ClusterID, kubeconfig []byte) (bool, error) {
	token := readToken(kubeconfig, m.Cluster)
	if m.opts.Rotate || token == "" || !freshEnough(token, m.opts.Now()) {
		return false, nil
	}
	// Only the API server knows: the account may have been made anew, or the
	// whole cluster.
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := m.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask cluster %s whether the credential of %s is still good: %w", m.ID, holder, err)
	}
	user := fmt.Sprintf("system:serviceaccount:%s:%s", m.Namespace, PeerName(holder))
	return review.Status.Authenticated && review.Status.User.Username == user, nil
}

// issue asks for a token of the account of holder here.
func (m *member) issue(ctx context.Context, holder model.ClusterID) (token string, expires time.Time, err error) {
	account := serviceAccount(m.Namespace, PeerName(holder))
	seconds := int64(m.opts.Expiry / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := m.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", expires, fmt.Errorf("ask cluster %s for a token of ServiceAccount %s/%s: %w", m.ID, account.Namespace, account.Name, err)
	}
	return request.Status.Token, request.Status.ExpirationTimestamp.Time, nil
}

// contains reports whether every entry of wanted is in labels.
func contains(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if labels[key] != value {
			return false
		}
	}
	return true
}
