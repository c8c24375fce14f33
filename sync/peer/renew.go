// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// renewEvery is how often tokens are looked at.
	renewEvery = time.Minute
	// renewAt is the part of its lifetime after which a token is renewed, so
	// that a peer may be down for the rest of it.
	renewAt = 0.6
)

// renewer keeps the ServiceAccount tokens in the peer Secrets alive: it asks
// the peer for a new token of the very account that the old one names, the only
// account for which joining grants that, and writes it into the Secret.
type renewer struct {
	set    *Set
	client client.Client
}

// NeedLeaderElection is true: two renewals of one token would be one too many.
func (*renewer) NeedLeaderElection() bool { return true }

// Start looks at all tokens now and then until ctx ends.
func (r *renewer) Start(ctx context.Context) error {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	for {
		for _, m := range r.readable() {
			if err := r.renew(ctx, m.connection, m.secret, time.Now()); err != nil && ctx.Err() == nil {
				r.set.opts.Log.Info("token not renewed, trying again", "cluster", m.connection.id, "reason", err.Error())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

type renewable struct {
	connection *connection
	secret     *corev1.Secret
}

// readable are the peers whose token works now; one on trial is left alone.
func (r *renewer) readable() (out []renewable) {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	for _, m := range r.set.members {
		if m.active != nil && m.next == nil && m.refused == "" {
			out = append(out, renewable{m.active, m.secret})
		}
	}
	return out
}

func (r *renewer) renew(ctx context.Context, c *connection, secret *corev1.Secret, now time.Time) error {
	claims, ok := readToken(c.config.BearerToken)
	if !ok || !claims.due(now) {
		return nil
	}
	clients, err := kubernetes.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return fmt.Errorf("client for cluster %s: %w", c.id, err)
	}
	seconds := claims.Expires - claims.Issued
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: claims.Audience}}
	answer, err := clients.CoreV1().ServiceAccounts(claims.namespace).CreateToken(ctx, claims.name, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("TokenRequest for ServiceAccount %s/%s in cluster %s: %s", claims.namespace, claims.name, c.id, shorten(err.Error()))
	}
	renewed, err := withToken(secret, answer.Status.Token)
	if err != nil {
		return err
	}
	// The patch holds the resource version, so that a Secret that join wrote
	// meanwhile is not overwritten.
	patch := client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, renewed, patch); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	r.set.opts.Log.Info("token renewed", "cluster", c.id)
	return nil
}

// withToken is secret with another token in its kubeconfig.
func withToken(secret *corev1.Secret, token string) (*corev1.Secret, error) {
	config, err := clientcmd.Load(secret.Data[secretKey])
	if err != nil || token == "" || len(config.AuthInfos) != 1 {
		return nil, fmt.Errorf("renew Secret %s/%s, key %s: expected one user and a new token", secret.Namespace, secret.Name, secretKey)
	}
	for _, user := range config.AuthInfos {
		user.Token = token
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("renew Secret %s/%s, key %s: encode: %w", secret.Namespace, secret.Name, secretKey, err)
	}
	out := secret.DeepCopy()
	out.Data[secretKey] = data
	return out, nil
}

// tokenClaims is what a ServiceAccount token says of itself. It is not
// verified: it is our own, and only the peer's API server acts on it.
type tokenClaims struct {
	Expires  int64    `json:"exp"`
	Issued   int64    `json:"iat"`
	Subject  string   `json:"sub"`
	Audience []string `json:"aud"`

	namespace, name string
}

func (t tokenClaims) due(now time.Time) bool {
	lifetime := float64(t.Expires - t.Issued)
	return float64(now.Unix()) >= float64(t.Issued)+renewAt*lifetime
}

// readToken reads a ServiceAccount token that expires; false for any other.
func readToken(token string) (tokenClaims, bool) {
	var claims tokenClaims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires <= claims.Issued || claims.Issued <= 0 {
		return claims, false
	}
	account, ok := strings.CutPrefix(claims.Subject, "system:serviceaccount:")
	if !ok {
		return claims, false
	}
	claims.namespace, claims.name, ok = strings.Cut(account, ":")
	return claims, ok && claims.namespace != "" && claims.name != ""
}
