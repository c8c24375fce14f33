// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// tokenFieldOwner is the field manager of what record writes. It is not FieldOwner,
// whose next apply of the account would remove the annotations.
const tokenFieldOwner = "comity-join-token"

// trust stores in m the credential of its account at issuer, as each of the Secrets
// in which a good one is not there. issuer has the address by which m reaches it.
func (m *member) trust(ctx context.Context, issuer *member, account string, secrets ...string) error {
	var issued []byte
	var note string
	for _, name := range secrets {
		existing, err := m.secret(ctx, name)
		if err != nil {
			return err
		}
		// The agent renews the token of each Secret by itself, so they need not be the same.
		kubeconfig, wanted := existing.Data[KubeconfigKey], secret(m.Namespace, name)
		keep, err := issuer.accepts(ctx, account, kubeconfig)
		if err != nil {
			return err
		}
		if !keep {
			if note == "" {
				if issued, note, err = issuer.issue(ctx, account, m.opts.Rotate || m.replaced); err != nil {
					return err
				}
			}
			kubeconfig = issued
		}
		if err := issuer.named(issuer.record(ctx, account, kubeconfig, keep)); err != nil {
			return err
		}
		// The agent renews the token and then owns that field; applying the same
		// value again would still write the new ownership.
		if keep && contains(existing.Labels, wanted.Labels) {
			m.report(wanted, Unchanged, "")
			continue
		}
		wanted.Data = map[string][]byte{KubeconfigKey: kubeconfig}
		if err := m.apply(ctx, wanted, note); err != nil {
			return err
		}
	}
	return nil
}

// accepts reports whether kubeconfig still lets account in here, for long enough.
func (m *member) accepts(ctx context.Context, account string, kubeconfig []byte) (bool, error) {
	token := readToken(kubeconfig, m.Cluster)
	if m.opts.Rotate || token == "" || !freshEnough(token, m.opts.Now()) {
		return false, nil
	}
	user, err := Authenticate(ctx, m.client, token)
	if err != nil {
		return false, fmt.Errorf("ask cluster %s whether the credential of %s is still good: %w", m.ID, account, err)
	}
	if user.Username != fmt.Sprintf("system:serviceaccount:%s:%s", m.Namespace, account) {
		return false, nil
	}
	// For 10 s, the API server remembers that a token was good whose account was made again
	// since, as by a rotation that was interrupted.
	var standing corev1.ServiceAccount
	err = m.get(ctx, m.Namespace, account, &standing)
	return err == nil && string(standing.UID) == user.UID, client.IgnoreNotFound(err)
}

// Authenticate asks the cluster of c whose token it is: only the API server knows, since the
// account may have been made again, or the whole cluster. It gives nobody for a token that
// is refused.
func Authenticate(ctx context.Context, c client.Client, token string) (user authenticationv1.UserInfo, err error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := c.Create(ctx, review); err != nil || !review.Status.Authenticated {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.User, nil
}

// issue makes a kubeconfig with a new token of account here. If again is true, it first
// deletes the account and makes it again. Every token of the old one is bound to its UID, so
// the API server refuses them from then on, save for the 10 s for which it remembers that a
// token was good.
func (m *member) issue(ctx context.Context, account string, again bool) (kubeconfig []byte, note string, err error) {
	wanted := serviceAccount(m.Namespace, account)
	if again {
		if err = m.remove(ctx, wanted); err == nil {
			err = m.apply(ctx, wanted, "its old tokens are not valid any more")
		}
	}
	if err != nil {
		return nil, "", err
	}
	if m.opts.DryRun {
		return nil, "new credential", nil
	}
	seconds := int64(m.opts.Expiry / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := m.client.SubResource("token").Create(ctx, wanted, request); err != nil {
		return nil, "", fmt.Errorf("ask cluster %s for a token of ServiceAccount %s/%s: %w", m.ID, m.Namespace, account, err)
	}
	if kubeconfig, err = writeKubeconfig(account, m.Cluster, request.Status.Token); err != nil {
		return nil, "", fmt.Errorf("write the kubeconfig for %s: %w", m.ID, err)
	}
	return kubeconfig, "new credential, valid until " + request.Status.ExpirationTimestamp.UTC().Format(time.RFC3339), nil
}

// record notes on account, here, the lifetime and the audiences of the token in a
// kubeconfig that it was given. A policy of the API server (config/admission) allows
// the account to renew it for no longer and for no other audience. What is noted of
// a token that is kept stays, since its account may have renewed it for less.
func (m *member) record(ctx context.Context, account string, data []byte, kept bool) error {
	claims, is := kubeconfig.ReadToken(readToken(data, m.Cluster))
	if m.opts.DryRun || !is {
		return nil
	}
	found := &corev1.ServiceAccount{}
	if err := m.get(ctx, m.Namespace, account, found); err != nil {
		return err
	}
	if _, noted := found.Annotations[model.AnnotationTokenExpiry]; kept && noted {
		return nil
	}
	return m.annotate(ctx, found, tokenFieldOwner, map[string]string{
		model.AnnotationTokenExpiry:    (time.Duration(claims.Expires-claims.Issued) * time.Second).String(),
		model.AnnotationTokenAudiences: strings.Join(claims.Audience, ","),
	})
}

// annotate adds the annotations that object, as it was read, does not have yet.
func (m *member) annotate(ctx context.Context, object client.Object, owner client.FieldOwner, wanted map[string]string) error {
	if contains(object.GetAnnotations(), wanted) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.GetUID(), "annotations": wanted}})
	if err == nil {
		err = m.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), owner)
	}
	if err != nil {
		return fmt.Errorf("annotate %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// contains reports whether every entry of wanted is in found.
func contains(found, wanted map[string]string) bool {
	return labels.Equals(found, labels.Merge(found, wanted))
}

// writeKubeconfig is the kubeconfig by which user reaches peer: self-contained,
// with no plugin, provider or file path, which the agent would refuse.
func writeKubeconfig(user string, peer Cluster, token string) ([]byte, error) {
	name := string(peer.ID)
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: peer.Server, CertificateAuthorityData: peer.CAData}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user, Namespace: peer.Namespace}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}

// readToken is the token in a kubeconfig that writeKubeconfig could have
// written for peer as it is now; empty if server, authority or form differ.
func readToken(data []byte, peer Cluster) string {
	config, fault := kubeconfig.Sanitize(data)
	if fault != nil || config.Host != peer.Server || !bytes.Equal(config.CAData, peer.CAData) {
		return ""
	}
	return config.BearerToken
}

// freshEnough reports whether more than half of the token's lifetime is left.
func freshEnough(token string, now time.Time) bool {
	claims, ok := kubeconfig.ReadToken(token)
	return ok && 2*(claims.Expires-now.Unix()) > claims.Expires-claims.Issued
}

// CheckCredential reads the Secret by which its holder reads a peer, and asks the API server of
// the peer, unless asked is nil, whether it accepts the token. It gives the reason for which
// the peer cannot be read with it; none if all is well.
func CheckCredential(ctx context.Context, holder client.Client, key client.ObjectKey, peer string, asked client.Client, now time.Time) (reason, message string, err error) {
	var secret corev1.Secret
	if err := holder.Get(ctx, key, &secret); apierrors.IsNotFound(err) {
		return "SecretMissing", "there is no credential by which cluster " + peer + " is read", nil
	} else if err != nil {
		return "", "", fmt.Errorf("read Secret %s: %w", key, err)
	}
	config, invalid := kubeconfig.Sanitize(secret.Data[KubeconfigKey])
	if invalid != nil {
		return "InvalidKubeconfig", fmt.Sprintf("the credential by which cluster %s is read cannot be used: %v", peer, invalid), nil
	}
	if claims, ok := kubeconfig.ReadToken(config.BearerToken); ok && claims.Expires <= now.Unix() {
		return "Expired", fmt.Sprintf("the token by which cluster %s is read expired at %s", peer, time.Unix(claims.Expires, 0).UTC().Format(time.RFC3339)), nil
	}
	if asked == nil {
		return "", "", nil
	}
	if user, err := Authenticate(ctx, asked, config.BearerToken); err != nil || user.Username != "" {
		return "", "", err
	}
	return "Unauthorized", fmt.Sprintf("cluster %s does not accept the token by which it is read: it was revoked, or its account was made again", peer), nil
}
