// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// certificate reads the webhook's: cert-manager's Certificate where there is one,
// and else the certificate in the Secret that the agent's Pod mounts.
func (p *part) certificate(ctx context.Context, target *command.Target) {
	pod, err := target.Clientset.CoreV1().Pods(p.agent.Namespace).Get(ctx, p.agent.Pod, metav1.GetOptions{})
	if err != nil {
		return // replicas reports it.
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret == nil {
			continue
		}
		secret, err := target.Clientset.CoreV1().Secrets(p.agent.Namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
		if err != nil || len(secret.Data[corev1.TLSCertKey]) == 0 {
			continue
		}
		found := fromSecret(secret)
		p.refine(ctx, target, secret.Name, found)
		p.cluster.Certificate = found
		if found.Expires != nil && found.Expires.Time.Before(p.now) {
			found.Ready = false
			p.problem("certificate "+found.Name, "it expired at %s; the webhook refuses every export until it is renewed", found.Expires.UTC().Format(time.RFC3339))
		} else if !found.Ready {
			p.problem("certificate "+found.Name, "it is not ready%s", after(found.Message))
		}
		return
	}
}

// fromSecret reads what is served.
func fromSecret(secret *corev1.Secret) *Certificate {
	found := &Certificate{Name: secret.Name}
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	if block == nil {
		found.Message = "key tls.crt of Secret " + secret.Name + " is not PEM"
		return found
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		found.Message = "key tls.crt of Secret " + secret.Name + ": " + err.Error()
		return found
	}
	found.Ready, found.Expires = true, timeOf(parsed.NotAfter)
	return found
}

// refine adds what cert-manager says, in a cluster that has it.
func (p *part) refine(ctx context.Context, target *command.Target, secret string, found *Certificate) {
	var certificates certmanagerv1.CertificateList
	if err := target.Client.List(ctx, &certificates, client.InNamespace(p.agent.Namespace)); err != nil {
		if !meta.IsNoMatchError(err) {
			p.problem("certificate "+secret, "read cert-manager's Certificates: %v", target.Errorf("%w", err))
		}
		return
	}
	for _, c := range certificates.Items {
		if c.Spec.SecretName != secret {
			continue
		}
		found.Name, found.Ready, found.Message = c.Name, false, "cert-manager has not issued it yet"
		for _, condition := range c.Status.Conditions {
			if condition.Type == certmanagerv1.CertificateConditionReady {
				found.Ready, found.Message = condition.Status == cmmeta.ConditionTrue, condition.Message
			}
		}
		if c.Status.NotAfter != nil {
			found.Expires = timeOf(c.Status.NotAfter.Time)
		}
	}
}
