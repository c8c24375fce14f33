// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// RenewTimeout bounds one request for a new token. A token is renewed when two fifths of its
// lifetime are left, so a request that fails is repeated in time.
const RenewTimeout = 10 * time.Second

// RenewSecret requests a new token for the ServiceAccount that the token of config names, and
// has local write it into the kubeconfig of secret. It reports false if the token belongs to
// no ServiceAccount or is not old enough yet. It waits RenewTimeout at most for the peer.
func RenewSecret(ctx context.Context, config *rest.Config, httpClient *http.Client, secret *corev1.Secret, local client.Writer, now time.Time) (bool, error) {
	claims, ok := kubeconfig.ReadToken(config.BearerToken)
	if !ok || !claims.Due(now) {
		return false, nil
	}
	token, err := requestToken(ctx, config, httpClient, claims)
	if err != nil {
		return false, fmt.Errorf("TokenRequest for ServiceAccount %s/%s: %s", claims.Namespace, claims.Name, model.OneLine(err.Error(), 200))
	}
	renewed := secret.DeepCopy()
	if renewed.Data[kubeconfig.SecretKey], err = kubeconfig.WithToken(secret.Data[kubeconfig.SecretKey], token); err != nil {
		return false, fmt.Errorf("secret %s/%s, key %s: %w", secret.Namespace, secret.Name, kubeconfig.SecretKey, err)
	}
	// With the resource version, so that a Secret that join wrote meanwhile is not overwritten.
	if err := local.Patch(ctx, renewed, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return true, nil
}

func requestToken(ctx context.Context, config *rest.Config, httpClient *http.Client, claims kubeconfig.Claims) (string, error) {
	clients, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, RenewTimeout)
	defer cancel()
	ctx, _ = metered(ctx, smallBytes, "one token")
	seconds := claims.Expires - claims.Issued
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: claims.Audience}}
	answer, err := clients.CoreV1().ServiceAccounts(claims.Namespace).CreateToken(ctx, claims.Name, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}
