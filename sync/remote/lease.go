// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// renewalOf identifies one renewal of a Lease. Two are compared for equality only,
// because the clocks of two clusters may differ.
func renewalOf(lease *coordinationv1.Lease) string {
	if lease.Spec.RenewTime == nil {
		return string(lease.UID)
	}
	return string(lease.UID) + "@" + strconv.FormatInt(lease.Spec.RenewTime.UnixNano(), 10)
}

func (c *Connection) leaseChanged(lease *coordinationv1.Lease) {
	if lease.Name != string(c.opts.ID) {
		return
	}
	c.mu.Lock()
	_, c.catchingUp = lease.Annotations[model.AnnotationCatchingUp]
	c.mu.Unlock()
	c.refresh()
	c.opts.Hooks.LeaseRead(c, renewalOf(lease))
}

// ReadLease reads the peer's Lease once, over a connection of its own. The failure says
// why there is no renewal.
func ReadLease(ctx context.Context, id, self model.ClusterID, config *rest.Config) (renewal string, failure Failure) {
	f := &feed{kind: "Leases", namespace: model.ExchangeNamespace(id)}
	lease, err := once(self, config, coordinationclient.NewForConfigAndClient, func(c *coordinationclient.CoordinationV1Client) (*coordinationv1.Lease, error) {
		return c.Leases(f.namespace).Get(ctx, string(id), metav1.GetOptions{})
	})
	switch {
	case apierrors.IsNotFound(err):
		return "", Failure{ReasonHeartbeatMissing, fmt.Sprintf("Lease %s/%s: does not exist in the peer; remedy: check that Comity runs in cluster %s", f.namespace, id, id)}
	case err != nil:
		return "", describe(id, f, err)
	}
	return renewalOf(lease), Failure{}
}

// RenewSecret requests a new token for the ServiceAccount that the token in the kubeconfig
// of secret names, and has local write it there. It reports false if the token belongs to no
// ServiceAccount or is not old enough yet. A token is renewed when two fifths of its
// lifetime are left, so a request that fails is repeated in time.
func RenewSecret(ctx context.Context, self model.ClusterID, secret *corev1.Secret, local client.Writer, now time.Time) (bool, error) {
	of := fmt.Sprintf("secret %s/%s, key %s", secret.Namespace, secret.Name, kubeconfig.SecretKey)
	config, err := kubeconfig.Sanitize(secret.Data[kubeconfig.SecretKey])
	if err != nil {
		return false, fmt.Errorf("%s: %w", of, err)
	}
	claims, ok := kubeconfig.ReadToken(config.BearerToken)
	if !ok || !claims.Due(now) {
		return false, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(claims.Expires - claims.Issued), Audiences: claims.Audience}}
	answer, err := once(self, config, corev1client.NewForConfigAndClient, func(c *corev1client.CoreV1Client) (*authenticationv1.TokenRequest, error) {
		return c.ServiceAccounts(claims.Namespace).CreateToken(ctx, claims.Name, request, metav1.CreateOptions{})
	})
	if err != nil {
		return false, fmt.Errorf("TokenRequest for ServiceAccount %s/%s: %s", claims.Namespace, claims.Name, model.OneLine(err.Error(), 200))
	}
	renewed := secret.DeepCopy()
	if renewed.Data[kubeconfig.SecretKey], err = kubeconfig.WithToken(secret.Data[kubeconfig.SecretKey], answer.Status.Token); err != nil {
		return false, fmt.Errorf("%s: %w", of, err)
	}
	// With the resource version, so that a Secret that join wrote meanwhile is not overwritten.
	if err := local.Patch(ctx, renewed, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("write %s: %w", of, err)
	}
	return true, nil
}

// once makes one request over a connection of its own.
func once[Client, Answer any](
	self model.ClusterID, config *rest.Config, newClient func(*rest.Config, *http.Client) (Client, error), request func(Client) (Answer, error),
) (answer Answer, err error) {
	fresh, err := freshClient(self, config)
	if err != nil {
		return answer, err
	}
	defer fresh.CloseIdleConnections()
	c, err := newClient(config, fresh)
	if err != nil {
		return answer, err
	}
	return request(c)
}
