// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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
	for _, m := range []*member{memberA, memberB} {
		if err := m.learn(ctx); err != nil {
			return fmt.Errorf("cluster %s: %w", m.ID, err)
		}
	}
	if err := disjoint(memberA, memberB); err != nil {
		return err
	}
	pairs := [][2]*member{{memberA, memberB}, {memberB, memberA}}
	for _, pair := range pairs {
		if err := pair[0].preflight(ctx, pair[1]); err != nil {
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
func distinct(ctx context.Context, members ...*member) error {
	for i, m := range members {
		var ns corev1.Namespace
		if err := m.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &ns); err != nil {
			return fmt.Errorf("cluster %s: %s cannot be read with the access given: %w", m.ID, m.RESTConfig.Host, err)
		}
		m.uid = ns.UID
		for _, other := range members[:i] {
			if other.uid == m.uid {
				return fmt.Errorf("clusters %s and %s are one and the same (%s and %s); give the access of two clusters",
					other.ID, m.ID, other.RESTConfig.Host, m.RESTConfig.Host)
			}
		}
	}
	return nil
}

// preflight refuses what Connect would otherwise take over: a namespace or a
// Secret that somebody else made under the same name.
func (m *member) preflight(ctx context.Context, peer *member) error {
	objects, err := Objects(m.Cluster, peer.Cluster)
	if err != nil {
		return err
	}
	if err := m.preflightNamespaces(ctx, objects); err != nil {
		return err
	}
	return m.preflightSecrets(ctx, peer)
}

// preflightNamespaces refuses those of objects that are somebody else's.
func (m *member) preflightNamespaces(ctx context.Context, objects []client.Object) error {
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
		if uid, was := wanted.Annotations[model.AnnotationClusterUID], found.Annotations[model.AnnotationClusterUID]; uid != "" && was != "" && uid != was {
			return fmt.Errorf("namespace %s is that of another cluster with the id %s (UID %s, not %s); give one of the two another id, or disconnect the one that is gone",
				wanted.Name, wanted.Labels[model.LabelExchangeFrom], was, uid)
		}
		for _, key := range []string{model.LabelExchangeFrom, model.LabelExchangeTo} {
			if found.Labels[key] != wanted.Labels[key] {
				return fmt.Errorf("namespace %s exists with label %s=%q, expected %q, so it is not the exchange namespace that peers may read; remove it or choose another cluster id",
					wanted.Name, key, found.Labels[key], wanted.Labels[key])
			}
		}
	}
	return nil
}

func (m *member) preflightSecrets(ctx context.Context, peer *member) error {
	var named corev1.Secret
	key := client.ObjectKey{Namespace: m.Namespace, Name: PeerName(peer.ID)}
	err := m.client.Get(ctx, key, &named)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Secret %s: %w", key, err)
	}
	if err == nil && named.Labels[model.LabelClusterID] != string(peer.ID) {
		return fmt.Errorf("the Secret %s exists and is not that of peer %s (label %s is %q); rename or delete it",
			key, peer.ID, model.LabelClusterID, named.Labels[model.LabelClusterID])
	}
	var claims corev1.SecretList
	if err := m.client.List(ctx, &claims, client.InNamespace(m.Namespace), client.MatchingLabels{model.LabelClusterID: string(peer.ID)}); err != nil {
		return fmt.Errorf("list the Secrets of peers in namespace %s: %w", m.Namespace, err)
	}
	for i := range claims.Items {
		if name := claims.Items[i].Name; name != key.Name {
			return fmt.Errorf("the Secret %s/%s claims the id %s already, and no id may be claimed twice; delete it or give the new peer another id",
				m.Namespace, name, peer.ID)
		}
	}
	_, _, err = m.acceptedFrom(peer, named.Annotations[model.AnnotationAcceptedCIDRs])
	return err
}

// admit applies what lets peer read this member.
func (m *member) admit(ctx context.Context, peer Cluster) error {
	objects, err := Objects(m.Cluster, peer)
	if err != nil {
		return err
	}
	return m.applyAll(ctx, objects)
}

func (m *member) applyAll(ctx context.Context, objects []client.Object) error {
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
	account := PeerName(m.ID)
	keep, err := peer.accepts(ctx, account, kubeconfig)
	if err != nil {
		return err
	}
	note := ""
	if !keep {
		if kubeconfig, note, err = peer.issue(ctx, account); err != nil {
			return err
		}
	}
	return m.store(ctx, peer, existing, kubeconfig, note)
}

// store brings m's Secret for peer up to date. existing is what it is now, note
// what there is to say of a new kubeconfig; empty if it is not new.
func (m *member) store(ctx context.Context, peer *member, existing corev1.Secret, kubeconfig []byte, note string) error {
	isNew := note != ""
	accepted, accepts, err := m.acceptedFrom(peer, existing.Annotations[model.AnnotationAcceptedCIDRs])
	if err != nil {
		return err
	}
	note = strings.Join(slices.DeleteFunc([]string{note, accepts}, func(s string) bool { return s == "" }), "; ")
	wanted := peerSecret(m.Cluster, peer.Cluster, kubeconfig, accepted)
	// The agent renews the token and then owns that field; applying the same
	// value again would still write the new ownership.
	if !isNew && contains(existing.Labels, wanted.Labels) && accepted == existing.Annotations[model.AnnotationAcceptedCIDRs] {
		m.report(wanted, Unchanged, note)
		return nil
	}
	return m.apply(ctx, wanted, note)
}

// accepts reports whether kubeconfig still lets account in here, for long enough.
func (m *member) accepts(ctx context.Context, account string, kubeconfig []byte) (bool, error) {
	token := readToken(kubeconfig, m.Cluster)
	if m.opts.Rotate || token == "" || !freshEnough(token, m.opts.Now()) {
		return false, nil
	}
	// Only the API server knows: the account may have been made anew, or the
	// whole cluster.
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := m.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask cluster %s whether the credential of %s is still good: %w", m.ID, account, err)
	}
	user := fmt.Sprintf("system:serviceaccount:%s:%s", m.Namespace, account)
	return review.Status.Authenticated && review.Status.User.Username == user, nil
}

// issue makes a kubeconfig with a new token of account here.
func (m *member) issue(ctx context.Context, account string) (kubeconfig []byte, note string, err error) {
	seconds := int64(m.opts.Expiry / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := m.client.SubResource("token").Create(ctx, serviceAccount(m.Namespace, account), request); err != nil {
		return nil, "", fmt.Errorf("ask cluster %s for a token of ServiceAccount %s/%s: %w", m.ID, m.Namespace, account, err)
	}
	if kubeconfig, err = writeKubeconfig(account, m.Cluster, request.Status.Token); err != nil {
		return nil, "", fmt.Errorf("write the kubeconfig for %s: %w", m.ID, err)
	}
	return kubeconfig, "new credential, valid until " + request.Status.ExpirationTimestamp.UTC().Format(time.RFC3339), nil
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

// Disconnect undoes Connect: both sides forget the other's credential first, so
// that neither reads on, then the accounts go (and every token of theirs with
// them) and the exchange namespace between the two. The namespace that a member
// shares with all its peers stays. A cluster without RESTConfig is taken for
// lost and left alone. Objects that Connect did not make are never deleted.
func Disconnect(ctx context.Context, a, b Cluster, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	var reachable []*member
	var others []model.ClusterID
	for _, pair := range [][2]Cluster{{a, b}, {b, a}} {
		if _, err := Objects(pair[0], pair[1]); err != nil {
			return err
		}
		if pair[0].RESTConfig == nil {
			continue
		}
		m, err := open(pair[0], opts)
		if err != nil {
			return err
		}
		reachable, others = append(reachable, m), append(others, pair[1].ID)
	}
	if len(reachable) == 0 {
		return fmt.Errorf("there is no access to cluster %s nor to cluster %s; give the kubeconfig of an administrator of one of them", a.ID, b.ID)
	}
	for i, m := range reachable {
		secret := &corev1.Secret{}
		secret.Namespace, secret.Name = m.Namespace, PeerName(others[i])
		if err := m.remove(ctx, secret); err != nil {
			return fmt.Errorf("cluster %s: %w", m.ID, err)
		}
	}
	for i, m := range reachable {
		for _, object := range grants(m.Cluster, others[i]) {
			if err := m.remove(ctx, object); err != nil {
				return fmt.Errorf("cluster %s: %w", m.ID, err)
			}
		}
	}
	return nil
}

// grants are the objects that let peer read local, in the order of removal.
func grants(local Cluster, peer model.ClusterID) []client.Object {
	account := PeerName(peer)
	shared, between := &rbacv1.RoleBinding{}, &corev1.Namespace{}
	shared.Namespace, shared.Name = model.ExchangeNamespace(local.ID), account
	between.Name = model.ScopedExchangeNamespace(local.ID, peer)
	own := []client.Object{&rbacv1.RoleBinding{}, &rbacv1.Role{}, &corev1.ServiceAccount{}}
	for _, object := range own {
		object.SetNamespace(local.Namespace)
		object.SetName(account)
	}
	return append(append([]client.Object{shared}, own...), between)
}
