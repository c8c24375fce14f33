// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// Connect makes a and b peers of each other: PrepareMesh and Write in one.
// Errors name cluster, object and remedy.
func Connect(ctx context.Context, a, b Cluster, opts Options) error {
	p, err := PrepareMesh(ctx, []Cluster{a, b}, opts)
	if err != nil {
		return err
	}
	return p.Write(ctx)
}

// preflight refuses namespaces that somebody else made under the same name.
func (m *member) preflight(ctx context.Context, peer *member) error {
	objects, err := Objects(m.Cluster, peer.Cluster)
	if err != nil {
		return err
	}
	return m.preflightNamespaces(ctx, objects)
}

// preflightNamespaces refuses those of objects that are somebody else's.
func (m *member) preflightNamespaces(ctx context.Context, objects []client.Object) error {
	roles := sync.OnceValues(func() ([]rbacv1.Role, error) { return m.rolesOfAccounts(ctx) })
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
		if uid, was := wanted.Annotations[model.AnnotationClusterUID], found.Annotations[model.AnnotationClusterUID]; uid != "" && was != "" && uid != was && !m.opts.Replace {
			return fmt.Errorf("namespace %s is that of another cluster with the id %s (UID %s, not %s); give one of the two another id, or, if the new cluster replaces the other one, run kubectl comity join --replace",
				wanted.Name, wanted.Labels[model.LabelExchangeFrom], was, uid)
		}
		for _, key := range []string{model.LabelExchangeFrom, model.LabelExchangeTo} {
			if found.Labels[key] != wanted.Labels[key] {
				return fmt.Errorf("namespace %s exists with label %s=%q, expected %q, so it is not the exchange namespace that peers may read; remove it or choose another cluster id",
					wanted.Name, key, found.Labels[key], wanted.Labels[key])
			}
		}
		if wanted.Labels[model.LabelExchangeFrom] != "" {
			recorded, err := roles()
			if err != nil {
				return err
			}
			if err := m.refuseForeign(ctx, &found, objects, recorded); err != nil {
				return err
			}
		}
	}
	return nil
}

// preflightSecret refuses one that somebody else made.
func (m *member) preflightSecret(ctx context.Context, name string) error {
	var found corev1.Secret
	key := client.ObjectKey{Namespace: m.Namespace, Name: name}
	if err := m.client.Get(ctx, key, &found); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read Secret %s: %w", key, err)
	} else if err == nil && found.Labels[managedByLabel] != FieldOwner {
		return fmt.Errorf("the Secret %s exists and was not made by a join; rename or delete it", key)
	}
	return nil
}

// via is m as it is reached at a.
func (m *member) via(a Address) *member {
	reached := *m
	reached.Server, reached.CAData = a.Server, a.CAData
	return &reached
}

func (m *member) applyAll(ctx context.Context, objects []client.Object) error {
	for _, object := range objects {
		if err := m.apply(ctx, object, ""); err != nil {
			return err
		}
	}
	return nil
}

// trust stores the credential for peer in this member, unless a good one is
// there. peer has the address by which m reaches it.
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
		if m.opts.Rotate || m.replaced {
			if err := peer.recreate(ctx, account); err != nil {
				return err
			}
		}
		if kubeconfig, note, err = peer.issue(ctx, account); err != nil {
			return err
		}
	}
	if err := peer.record(ctx, account, kubeconfig, keep); err != nil {
		return fmt.Errorf("cluster %s: %w", peer.ID, err)
	}
	return m.store(ctx, peer, existing, kubeconfig, note)
}

// store brings m's Secret for peer up to date. existing is what it is now, note
// what there is to say of a new kubeconfig; empty if it is not new.
func (m *member) store(ctx context.Context, peer *member, existing corev1.Secret, kubeconfig []byte, note string) error {
	wanted := peerSecret(m.Cluster, peer.Cluster, kubeconfig)
	// The agent renews the token and then owns that field; applying the same
	// value again would still write the new ownership.
	if note == "" && contains(existing.Labels, wanted.Labels) {
		m.report(wanted, Unchanged, "")
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
	// Only the API server knows: the account may have been made again, or the
	// whole cluster.
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := m.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask cluster %s whether the credential of %s is still good: %w", m.ID, account, err)
	}
	user := fmt.Sprintf("system:serviceaccount:%s:%s", m.Namespace, account)
	return review.Status.Authenticated && review.Status.User.Username == user, nil
}

// recreate deletes account here and makes it again. Every token of the old one
// is bound to its UID, so the API server refuses them from then on, save for the
// 10 s for which it remembers that a token was good.
func (m *member) recreate(ctx context.Context, account string) error {
	wanted := serviceAccount(m.Namespace, account)
	if err := m.remove(ctx, wanted); err != nil {
		return err
	}
	return m.apply(ctx, wanted, "its old tokens are not valid any more")
}

// issue makes a kubeconfig with a new token of account here.
func (m *member) issue(ctx context.Context, account string) (kubeconfig []byte, note string, err error) {
	if m.opts.DryRun {
		return nil, "new credential", nil
	}
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
