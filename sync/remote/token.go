// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// RenewSecret requests a new token for the ServiceAccount that the token in the kubeconfig
// of secret names, and has local write it there. It reports false if the token belongs to no
// ServiceAccount or is not old enough yet. A token is renewed when two fifths of its
// lifetime are left, so a request that fails is repeated in time.
func RenewSecret(ctx context.Context, self model.ClusterID, secret *corev1.Secret, local client.Writer, now time.Time) (bool, error) {
	of := fmt.Sprintf("secret %s/%s, key %s", secret.Namespace, secret.Name, kubeconfig.SecretKey)
	config, fault := kubeconfig.Sanitize(secret.Data[kubeconfig.SecretKey])
	if fault != nil {
		return false, fmt.Errorf("%s: %s", of, fault)
	}
	claims, ok := kubeconfig.ReadToken(config.BearerToken)
	if !ok || !claims.Due(now) {
		return false, nil
	}
	token, err := requestToken(ctx, self, config, claims)
	if err != nil {
		return false, fmt.Errorf("TokenRequest for ServiceAccount %s/%s: %s", claims.Namespace, claims.Name, model.OneLine(err.Error(), 200))
	}
	renewed := secret.DeepCopy()
	if renewed.Data[kubeconfig.SecretKey], err = kubeconfig.WithToken(secret.Data[kubeconfig.SecretKey], token); err != nil {
		return false, fmt.Errorf("%s: %w", of, err)
	}
	// With the resource version, so that a Secret that join wrote meanwhile is not overwritten.
	if err := local.Patch(ctx, renewed, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("write %s: %w", of, err)
	}
	return true, nil
}

func requestToken(ctx context.Context, self model.ClusterID, config *rest.Config, claims kubeconfig.Claims) (string, error) {
	fresh, err := freshClient(self, config)
	if err != nil {
		return "", err
	}
	defer fresh.CloseIdleConnections()
	core, err := corev1client.NewForConfigAndClient(config, fresh)
	if err != nil {
		return "", err
	}
	seconds := claims.Expires - claims.Issued
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: claims.Audience}}
	answer, err := core.ServiceAccounts(claims.Namespace).CreateToken(ctx, claims.Name, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}
