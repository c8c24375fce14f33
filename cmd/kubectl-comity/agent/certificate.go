// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/x509"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// Certificate reads what the webhook serves: the Secret with a certificate that Pods of spec
// mount, and its chain, the webhook's own first. Both are nil if no such Secret can be read.
func Certificate(ctx context.Context, target *command.Target, namespace string, spec corev1.PodSpec) (*corev1.Secret, []*x509.Certificate, error) {
	for _, volume := range spec.Volumes {
		if volume.Secret == nil {
			continue
		}
		secret := &corev1.Secret{}
		if err := target.Get(ctx, namespace, volume.Secret.SecretName, secret); err != nil || len(secret.Data[corev1.TLSCertKey]) == 0 {
			continue
		}
		chain, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
		if err != nil {
			return secret, nil, fmt.Errorf("key %s of the Secret: %w", corev1.TLSCertKey, err)
		}
		return secret, chain, nil
	}
	return nil, nil, nil
}
