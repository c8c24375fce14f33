// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// Deploy installs Comity as users run it: the Deployment of config/default with
// the given image, and waits until both replicas are ready.
func Deploy(ctx context.Context, t Target, image string) error {
	certificate, err := NewCertificate(Namespace)
	if err != nil {
		return err
	}
	secret, err := certificateSecret(certificate)
	if err != nil {
		return err
	}
	err = applyAll(ctx, t, func(o *unstructured.Unstructured) (bool, error) {
		return true, asUsersRunIt(o, t, image, certificate.CA)
	})
	if err != nil {
		return err
	}
	if err := apply(ctx, t.Cluster, []*unstructured.Unstructured{secret}); err != nil {
		return err
	}
	return waitDeployed(ctx, t)
}

// asUsersRunIt sets what an overlay of config/default would: identity, image, caBundle.
func asUsersRunIt(o *unstructured.Unstructured, t Target, image string, ca []byte) error {
	switch o.GetKind() {
	case "ConfigMap":
		return unstructured.SetNestedStringMap(o.Object, map[string]string{"COMITY_CLUSTER_ID": t.Cluster.ID(), "COMITY_CLUSTERSET": t.Set}, "data")
	case "Deployment":
		containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if err != nil {
			return err
		}
		containers[0].(map[string]any)["image"] = image
		return unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
	}
	return eachWebhook(o, func(clientConfig map[string]any) { clientConfig["caBundle"] = encode(ca) })
}

func certificateSecret(c Certificate) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "comity-webhook-cert"},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: c.Cert, corev1.TLSPrivateKeyKey: c.Key},
	})
	return &unstructured.Unstructured{Object: object}, err
}

// waitDeployed waits until every replica of the newest revision is ready.
func waitDeployed(ctx context.Context, t Target) error {
	clientset, err := kubernetes.NewForConfig(t.Cluster.RESTConfig())
	if err != nil {
		return err
	}
	// A control plane that has just come up may refuse once, so an error is
	// kept for the end, and does not end the wait.
	var last error
	err = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		var d *appsv1.Deployment
		if d, last = clientset.AppsV1().Deployments(Namespace).Get(ctx, "comity", metav1.GetOptions{}); last == nil {
			last = unfinished(d)
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("deployment %s/comity in %s: %w: %w", Namespace, t.Cluster.ID(), err, last)
	}
	return nil
}

// unfinished says what a rollout still waits for.
func unfinished(d *appsv1.Deployment) error {
	s, want := d.Status, *d.Spec.Replicas
	if s.ObservedGeneration == d.Generation && s.ReadyReplicas == want && s.UpdatedReplicas == want {
		return nil
	}
	return fmt.Errorf("%d of %d replicas are ready, %d are of the newest revision", s.ReadyReplicas, want, s.UpdatedReplicas)
}

func encode(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }
