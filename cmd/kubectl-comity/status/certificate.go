// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// certificate reads the one that the webhook serves, in the Secret that the agent's Pod
// mounts.
func (p *part) certificate(ctx context.Context, target *command.Target, pod *corev1.Pod) {
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret == nil {
			continue
		}
		var secret corev1.Secret
		if err := target.Get(ctx, pod.Namespace, volume.Secret.SecretName, &secret); err != nil || len(secret.Data[corev1.TLSCertKey]) == 0 {
			continue
		}
		chain, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
		if err != nil {
			p.problem("certificate "+secret.Name, "key %s of the Secret: %v", corev1.TLSCertKey, err)
			return
		}
		ends := chain[0].NotAfter
		p.cluster.Certificate = &Certificate{Name: secret.Name, Expires: timeOf(ends)}
		if !ends.After(p.now) {
			p.problem("certificate "+secret.Name, "it expired at %s; the webhook refuses every export until it is renewed", ends.UTC().Format(time.RFC3339))
		}
		return
	}
}
