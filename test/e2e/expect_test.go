// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// hostOf is the clusterset name of a Service.
func hostOf(key types.NamespacedName) string {
	return key.Name + "." + key.Namespace + ".svc.clusterset.local"
}

// exportOf reads a ServiceExport.
func (m *member) exportOf(ctx context.Context, key types.NamespacedName) (*mcsv1beta1.ServiceExport, error) {
	export := &mcsv1beta1.ServiceExport{}
	return export, m.client.Get(ctx, key, export)
}

// expectExported waits until the ServiceExport of key is out: valid, admitted,
// ready, and in conflict or not. It gives the message of Conflict.
func (m *member) expectExported(ctx context.Context, key types.NamespacedName, conflict metav1.ConditionStatus) string {
	GinkgoHelper()
	var message string
	Eventually(ctx, func(g Gomega) {
		export, err := m.exportOf(ctx, key)
		g.Expect(err).NotTo(HaveOccurred())
		for name, want := range map[string]metav1.ConditionStatus{
			condition.TypeValid: metav1.ConditionTrue, condition.TypeReady: metav1.ConditionTrue,
			condition.TypeAdmitted: metav1.ConditionTrue, condition.TypeConflict: conflict,
		} {
			found := meta.FindStatusCondition(export.Status.Conditions, name)
			g.Expect(found).NotTo(BeNil(), "condition %s", name)
			g.Expect(found.Status).To(Equal(want), "%s: %s: %s", name, found.Reason, found.Message)
		}
		message = meta.FindStatusCondition(export.Status.Conditions, condition.TypeConflict).Message
	}).Should(Succeed(), "ServiceExport %s in cluster %s", key, m.ID())
	step("in %s: ServiceExport %s is Valid, Admitted and Ready, Conflict=%s", m.ID(), key, conflict)
	return message
}

// expectImported waits until m imports key from exactly these clusters, with
// status and a derived Service that fit.
func (m *member) expectImported(ctx context.Context, key types.NamespacedName, kind mcsv1beta1.ServiceImportType, sources ...string) *mcsv1beta1.ServiceImport {
	GinkgoHelper()
	imported := &mcsv1beta1.ServiceImport{}
	Eventually(ctx, func(g Gomega) {
		g.Expect(m.client.Get(ctx, key, imported)).To(Succeed())
		g.Expect(imported.Spec.Type).To(Equal(kind))
		g.Expect(imported.Status.EndpointSliceObjects).To(Equal(mcsv1beta1.EndpointSliceObjectsPresent))
		var clusters []string
		for _, c := range imported.Status.Clusters {
			clusters = append(clusters, c.Cluster)
		}
		g.Expect(clusters).To(ConsistOf(sources), "status.clusters")
		ready := meta.FindStatusCondition(imported.Status.Conditions, condition.TypeImportReady)
		g.Expect(ready).NotTo(BeNil(), "condition Ready")
		g.Expect(ready.Status).To(Equal(metav1.ConditionTrue), "Ready: %s: %s", ready.Reason, ready.Message)

		derived := &corev1.Service{}
		g.Expect(m.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: imported.Annotations[model.AnnotationDerivedName]}, derived)).To(Succeed())
		g.Expect(derived.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
		g.Expect(derived.Spec.Selector).To(BeEmpty())
		if kind == mcsv1beta1.Headless {
			g.Expect(derived.Spec.ClusterIP).To(Equal(corev1.ClusterIPNone))
			g.Expect(imported.Spec.IPs).To(BeEmpty())
			return
		}
		g.Expect(imported.Spec.IPs).To(Equal(derived.Spec.ClusterIPs))
	}).Should(Succeed(), "ServiceImport %s in cluster %s", key, m.ID())
	step("in %s: ServiceImport %s (%s) is Ready, from %v", m.ID(), key, kind, sources)
	return imported
}

// source is what a ServiceImport says of the clusters that contribute to it.
func (m *member) source(ctx context.Context, key types.NamespacedName) (*metav1.Condition, error) {
	imported := &mcsv1beta1.ServiceImport{}
	if err := m.client.Get(ctx, key, imported); err != nil {
		return nil, err
	}
	if found := meta.FindStatusCondition(imported.Status.Conditions, condition.TypeAvailable); found != nil {
		return found, nil
	}
	return &metav1.Condition{}, nil
}

// expectSource waits until it says reason, and gives the message.
func (m *member) expectSource(ctx context.Context, key types.NamespacedName, reason string) string {
	GinkgoHelper()
	var found *metav1.Condition
	Eventually(ctx, func() (_ *metav1.Condition, err error) {
		found, err = m.source(ctx, key)
		return found, err
	}).Should(HaveField("Reason", reason), "Available of ServiceImport %s in cluster %s", key, m.ID())
	step("in %s: ServiceImport %s: Available=%s, %s: %s", m.ID(), key, found.Status, found.Reason, found.Message)
	return found.Message
}

// traces lists what Comity made of key in m, as kind and name.
func (m *member) traces(ctx context.Context, key types.NamespacedName) ([]string, error) {
	var found []string
	err := m.client.Get(ctx, key, &mcsv1beta1.ServiceImport{})
	if err == nil {
		found = append(found, "ServiceImport "+key.String())
	} else if !apierrors.IsNotFound(err) {
		return nil, err
	}
	for _, kind := range []struct {
		list client.ObjectList
		with []client.ListOption
	}{
		{&corev1.ServiceList{}, []client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabels{model.LabelServiceName: key.Name}}},
		{&discoveryv1.EndpointSliceList{}, []client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabels{model.LabelServiceName: key.Name}}},
		{&discoveryv1.EndpointSliceList{}, []client.ListOption{client.MatchingLabels{model.LabelExportNamespace: key.Namespace, model.LabelExportName: key.Name}}},
	} {
		if err := m.client.List(ctx, kind.list, kind.with...); err != nil {
			return nil, err
		}
		names, err := namesOf(kind.list)
		if err != nil {
			return nil, err
		}
		found = append(found, names...)
	}
	records, err := m.recordNamespaces(ctx, key)
	for _, namespace := range records {
		found = append(found, "ExportRecord in "+namespace)
	}
	return found, err
}

// expectNoTrace waits until nothing of key is left in m: no object, no name.
func (m *member) expectNoTrace(ctx context.Context, key types.NamespacedName) {
	GinkgoHelper()
	Eventually(ctx, func() ([]string, error) { return m.traces(ctx, key) }).Should(BeEmpty(), "what is left of %s in cluster %s", key, m.ID())
	step("in %s: no trace of %s", m.ID(), key)
	m.expectNoName(ctx, hostOf(key))
}

// expectAddressAlone waits until nothing of key is left in m but the derived Service: its
// export is suspended, and keeps the clusterset IP.
func (m *member) expectAddressAlone(ctx context.Context, key types.NamespacedName) {
	GinkgoHelper()
	Eventually(ctx, func() ([]string, error) { return m.traces(ctx, key) }).
		Should(HaveExactElements(HavePrefix("*v1.Service ")), "what is left of %s in cluster %s", key, m.ID())
	step("in %s: of %s the derived Service alone is left", m.ID(), key)
	m.expectNoName(ctx, hostOf(key))
}

// recordNamespaces are those exchange namespaces of m in which key is published. A
// record that states a withdrawal does not count.
func (m *member) recordNamespaces(ctx context.Context, key types.NamespacedName) ([]string, error) {
	var list exchangev1alpha1.ExportRecordList
	if err := m.client.List(ctx, &list); err != nil {
		return nil, err
	}
	var found []string
	for _, record := range list.Items {
		if record.Name == model.RecordName(key.Namespace, key.Name) && !record.Spec.Withdrawn {
			found = append(found, record.Namespace)
		}
	}
	slices.Sort(found)
	return found, nil
}

func namesOf(list client.ObjectList) ([]string, error) {
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, item := range items {
		object := item.(client.Object)
		names = append(names, fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object)))
	}
	return names, nil
}
