// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/members/kubeconfig"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

const (
	// keepEvery is how often the age of each token is checked.
	keepEvery = time.Minute
	// RenewTimeout bounds one request for a new token. A token is renewed when
	// half of its lifetime is left, so a request that fails is repeated in time.
	RenewTimeout = 10 * time.Second
)

// tokenRefresher keeps the peer Secrets current. It asks the peer for a new token of the
// very account that the old one names, the only account for which joining grants
// that, and it notes which cluster a Secret belongs to.
type tokenRefresher struct {
	set    *Set
	client client.Client
}

// NeedLeaderElection is true: two renewals of one token would be one too many.
func (*tokenRefresher) NeedLeaderElection() bool { return true }

// Start checks all peer Secrets every keepEvery until ctx ends.
func (k *tokenRefresher) Start(ctx context.Context) error {
	ticker := k.set.opts.Clock.NewTicker(keepEvery)
	defer ticker.Stop()
	for {
		k.keepAll(ctx, k.readable())
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		case <-k.set.unnoted:
		}
	}
}

// keepAll renews and notes all peers side by side, so that a peer that does not
// answer delays no other peer's token. It returns after RenewTimeout at the latest,
// and whatever our own API server takes.
func (k *tokenRefresher) keepAll(ctx context.Context, peers []readable) {
	var group sync.WaitGroup
	for _, m := range peers {
		group.Go(func() {
			if err := k.renew(ctx, m.connection, m.secret, k.set.opts.Clock.Now()); err != nil && ctx.Err() == nil {
				k.set.opts.Log.Info("token not renewed, trying again", "cluster", m.connection.ID(), "reason", err.Error())
			}
			if err := k.note(ctx, m.secret, m.uid); err != nil && ctx.Err() == nil {
				k.set.opts.Log.Info("cluster not noted, trying again", "cluster", m.connection.ID(), "reason", err.Error())
			}
		})
	}
	group.Wait()
}

type readable struct {
	connection *remote.Connection
	secret     *corev1.Secret
	uid        types.UID
}

// readable are the peers whose token works now; one on trial is left alone.
func (k *tokenRefresher) readable() (out []readable) {
	k.set.mu.Lock()
	defer k.set.mu.Unlock()
	for _, m := range k.set.members {
		if m.active != nil && m.next == nil && m.refused == "" && !m.active.Renewing() {
			out = append(out, readable{m.active.Connection, m.secret, m.uid})
		}
	}
	return out
}

// note writes into the Secret which cluster it belongs to, once.
func (k *tokenRefresher) note(ctx context.Context, secret *corev1.Secret, uid types.UID) error {
	if uid == "" || noted(secret) != "" {
		return nil
	}
	marked := secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, model.AnnotationClusterUID, string(uid))
	return k.patch(ctx, secret, marked)
}

// patch holds the resource version, so that a Secret that join wrote meanwhile
// is not overwritten.
func (k *tokenRefresher) patch(ctx context.Context, before, after *corev1.Secret) error {
	if err := k.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", before.Namespace, before.Name, err)
	}
	return nil
}

func (k *tokenRefresher) renew(ctx context.Context, c *remote.Connection, secret *corev1.Secret, now time.Time) error {
	config, httpClient := c.Client()
	renewed, err := Renew(ctx, config, httpClient, secret, now)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.ID(), err)
	}
	if renewed == nil {
		return nil
	}
	if err := k.patch(ctx, secret, renewed); err != nil {
		return err
	}
	k.set.opts.Log.Info("token renewed", "cluster", c.ID())
	return nil
}

// Renew asks the API server of config for a new token of the very account that
// config's token names, and gives secret with that token in its kubeconfig. It
// gives nil if the token is no ServiceAccount's or not old enough yet. It
// waits RenewTimeout at most and stores nothing.
func Renew(ctx context.Context, config *rest.Config, httpClient *http.Client, secret *corev1.Secret, now time.Time) (*corev1.Secret, error) {
	claims, ok := kubeconfig.ReadToken(config.BearerToken)
	if !ok || !claims.Due(now) {
		return nil, nil
	}
	clients, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client for renewal: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, RenewTimeout)
	defer cancel()
	seconds := claims.Expires - claims.Issued
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: claims.Audience}}
	answer, err := clients.CoreV1().ServiceAccounts(claims.Namespace).CreateToken(ctx, claims.Name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("TokenRequest for ServiceAccount %s/%s: %s", claims.Namespace, claims.Name, remote.Shorten(err.Error()))
	}
	renewed := secret.DeepCopy()
	if renewed.Data[secretKey], err = kubeconfig.WithToken(secret.Data[secretKey], answer.Status.Token); err != nil {
		return nil, fmt.Errorf("secret %s/%s, key %s: %w", secret.Namespace, secret.Name, secretKey, err)
	}
	return renewed, nil
}
