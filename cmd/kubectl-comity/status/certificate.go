// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		secret, err := target.Clientset.CoreV1().Secrets(pod.Namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
		if err != nil || len(secret.Data[corev1.TLSCertKey]) == 0 {
			continue
		}
		found := &Certificate{Name: secret.Name}
		p.cluster.Certificate = found
		chain, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
		if err != nil {
			found.Message = err.Error()
			p.problem("certificate "+found.Name, "key %s of the Secret: %v", corev1.TLSCertKey, err)
			return
		}
		found.Expires = timeOf(chain[0].NotAfter)
		if found.Ready = chain[0].NotAfter.After(p.now); !found.Ready {
			p.problem("certificate "+found.Name, "it expired at %s; the webhook refuses every export until it is renewed", found.Expires.UTC().Format(time.RFC3339))
		}
		return
	}
}
