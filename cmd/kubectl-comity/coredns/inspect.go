// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

const namespace = metav1.NamespaceSystem

// inspect reads what the cluster has of CoreDNS.
func inspect(ctx context.Context, target *command.Target) (found, error) {
	var f found
	config, deployment, kubeDNS := &corev1.ConfigMap{}, &appsv1.Deployment{}, &appsv1.Deployment{}
	custom, kubeadm := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	local, localConfig := &appsv1.DaemonSet{}, &corev1.ConfigMap{}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	var there [8]bool
	for i, read := range []struct {
		object          client.Object
		namespace, name string
	}{
		{config, namespace, "coredns"},
		{deployment, namespace, "coredns"},
		{kubeDNS, namespace, "kube-dns"},
		{custom, namespace, "coredns-custom"},
		{kubeadm, namespace, "kubeadm-config"},
		{local, namespace, "node-local-dns"},
		{localConfig, namespace, "node-local-dns"},
		{crd, "", "serviceimports." + mcsv1alpha1.GroupName},
	} {
		err := target.Client.Get(ctx, client.ObjectKey{Namespace: read.namespace, Name: read.name}, read.object)
		if client.IgnoreNotFound(err) != nil {
			return f, target.Errorf("read the configuration of CoreDNS: %w", err)
		}
		there[i] = err == nil
	}
	if there[0] {
		f.config = config
	}
	if there[1] {
		f.deployment = deployment
	}
	f.kubeDNS, f.custom, f.kubeadm = there[2], there[3], there[4]
	f.nodeLocalRuns, f.nodeLocal = there[5], localConfig.Data[configKey]
	f.importsCRD = there[7] && serves(crd, mcsv1alpha1.GroupVersion.Version)
	nodes, err := target.Clientset.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return f, target.Errorf("read the Nodes: %w", err)
	}
	if len(nodes.Items) > 0 {
		f.providerID = nodes.Items[0].Spec.ProviderID
	}
	return f, nil
}

func serves(crd *apiextensionsv1.CustomResourceDefinition, version string) bool {
	for _, v := range crd.Spec.Versions {
		if v.Name == version && v.Served {
			return true
		}
	}
	return false
}

// mayRead asks the API server whether CoreDNS's account may list and watch
// ServiceImports, whoever granted it.
func mayRead(ctx context.Context, target *command.Target, account string) (bool, error) {
	for _, verb := range readVerbs {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   fmt.Sprintf("system:serviceaccount:%s:%s", namespace, account),
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: mcsv1alpha1.GroupName, Resource: "serviceimports",
			},
		}}
		answer, err := target.Clientset.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, target.Errorf("ask for the rights of CoreDNS's account: %w", err)
		}
		if !answer.Status.Allowed {
			return false, nil
		}
	}
	return true, nil
}

// hasRole is true if this command made the ClusterRole or the binding.
func hasRole(ctx context.Context, target *command.Target, account string) (bool, error) {
	for _, object := range roleObjects(account) {
		err := target.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil {
			return true, nil
		}
		if !apierrors.IsNotFound(err) {
			return false, target.Errorf("read the rights of CoreDNS's account: %w", err)
		}
	}
	return false, nil
}
