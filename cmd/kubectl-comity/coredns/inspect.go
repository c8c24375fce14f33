// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

const namespace = metav1.NamespaceSystem

// found is what a cluster has of CoreDNS. Absent objects are nil.
type found struct {
	config     *corev1.ConfigMap
	deployment *appsv1.Deployment
	// custom is true if there is a ConfigMap coredns-custom, which a provider's Corefile includes.
	custom bool
	// kubeDNS is true if the cluster is served by kube-dns.
	kubeDNS bool
	// providerID is that of a Node, such as azure:///subscriptions/...
	providerID string
	// nodeLocal is the Corefile of NodeLocal DNSCache, nodeLocalRuns is true if it runs.
	nodeLocal     string
	nodeLocalRuns bool
	// kubeadm is true if kubeadm made the cluster.
	kubeadm bool
	// importsServed is true if the API server serves the ServiceImports that CoreDNS reads.
	importsServed bool
}

// inspect reads what the cluster has of CoreDNS.
func inspect(ctx context.Context, target *command.Target) (found, error) {
	var failed error
	exists := func(name string, object client.Object) bool {
		err := target.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
		failed = errors.Join(failed, client.IgnoreNotFound(err))
		return err == nil
	}
	f := found{config: &corev1.ConfigMap{}, deployment: &appsv1.Deployment{}}
	if !exists("coredns", f.config) {
		f.config = nil
	}
	if !exists("coredns", f.deployment) {
		f.deployment = nil
	}
	f.kubeDNS = exists("kube-dns", &appsv1.Deployment{})
	f.custom = exists("coredns-custom", &corev1.ConfigMap{})
	f.kubeadm = exists("kubeadm-config", &corev1.ConfigMap{})
	local := &corev1.ConfigMap{}
	exists("node-local-dns", local)
	f.nodeLocal = local.Data[configKey]
	f.nodeLocalRuns = exists("node-local-dns", &appsv1.DaemonSet{})
	_, err := target.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: mcsv1alpha1.GroupName, Kind: "ServiceImport"}, mcsv1alpha1.GroupVersion.Version)
	if f.importsServed = err == nil; meta.IsNoMatchError(err) {
		err = nil
	}
	var nodes corev1.NodeList
	failed = errors.Join(failed, err, target.Client.List(ctx, &nodes, client.Limit(1)))
	if len(nodes.Items) > 0 {
		f.providerID = nodes.Items[0].Spec.ProviderID
	}
	if failed != nil {
		return f, target.Errorf("read the configuration of CoreDNS: %w", failed)
	}
	return f, nil
}

// lacksRight asks the API server whether CoreDNS's account may not list and watch
// ServiceImports, whoever grants it.
func lacksRight(ctx context.Context, target *command.Target, account string) (bool, error) {
	for _, verb := range []string{"list", "watch"} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               fmt.Sprintf("system:serviceaccount:%s:%s", namespace, account),
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: mcsv1alpha1.GroupName, Resource: "serviceimports"},
		}}
		if err := target.Client.Create(ctx, review); err != nil {
			return false, target.Errorf("ask for the rights of CoreDNS's account: %w", err)
		}
		if !review.Status.Allowed {
			return true, nil
		}
	}
	return false, nil
}

// hasRole is true if this command made the ClusterRole or the binding.
func hasRole(ctx context.Context, target *command.Target, account string) (bool, error) {
	for _, object := range roleObjects(account) {
		if err := target.Get(ctx, "", roleName, object); err == nil || !apierrors.IsNotFound(err) {
			return err == nil, err
		}
	}
	return false, nil
}
