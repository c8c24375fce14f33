// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// snapshot collects what agents made for one namespace, without what differs
// from run to run: uids, times, versions and addresses of Services.
type snapshot struct {
	namespace string
	found     map[string]string
}

// world is everything of ours that exists for a namespace: what was made in it,
// and what stands in the exchanges, in every cluster, by kind, place and name.
func world(ctx context.Context, namespace string) map[string]string {
	GinkgoHelper()
	s := snapshot{namespace: namespace, found: map[string]string{}}
	for _, id := range ids {
		m := members[id]
		s.services(ctx, m)
		s.slices(ctx, m)
		s.imports(ctx, m)
		s.records(ctx, m)
		s.exports(ctx, m)
	}
	return s.found
}

// add stores an object; a second one of the same key gets a number, so that
// one too many shows.
func (s snapshot) add(m *member, kind, key string, content any) {
	GinkgoHelper()
	text, err := json.Marshal(content)
	Expect(err).NotTo(HaveOccurred())
	name := fmt.Sprintf("%s: %s %s", m.ID(), kind, key)
	for n := 2; s.found[name] != ""; n++ {
		name = fmt.Sprintf("%s: %s %s (%d)", m.ID(), kind, key, n)
	}
	s.found[name] = strings.ReplaceAll(string(text), s.namespace, "<namespace>")
}

func (s snapshot) list(ctx context.Context, m *member, list client.ObjectList, opts ...client.ListOption) {
	GinkgoHelper()
	Expect(m.client.List(ctx, list, opts...)).To(Succeed())
}

func (s snapshot) services(ctx context.Context, m *member) {
	var list corev1.ServiceList
	s.list(ctx, m, &list, client.InNamespace(s.namespace))
	for i := range list.Items {
		o := &list.Items[i]
		if !model.IsManaged(o) || s.keepsAddress(ctx, m, o) {
			continue
		}
		spec := o.Spec.DeepCopy()
		spec.ClusterIPs = addressless(spec.ClusterIPs)
		spec.ClusterIP = ""
		s.add(m, "Service", o.Name, map[string]any{"labels": o.Labels, "spec": spec})
	}
}

// keepsAddress reports whether a derived Service keeps the address of an import that is
// suspended: an export was imported, and is not any more though it exists. A run from nothing
// never imported it.
func (s snapshot) keepsAddress(ctx context.Context, m *member, o *corev1.Service) bool {
	list, err := model.ParseList(o.Annotations[model.AnnotationList])
	isOut := err == nil && len(list.Entries) > 0 && !slices.ContainsFunc(list.Entries, func(e model.Entry) bool { return e.Absent != model.SourceSuspended })
	imported := &mcsv1beta1.ServiceImport{}
	err = m.client.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Labels[model.LabelServiceName]}, imported)
	return isOut && apierrors.IsNotFound(err)
}

// addressless keeps whether there are addresses, and of a headless Service that
// there are none.
func addressless(ips []string) []string {
	out := slices.Clone(ips)
	for i := range out {
		if out[i] != corev1.ClusterIPNone {
			out[i] = "<address>"
		}
	}
	return out
}

func (s snapshot) slices(ctx context.Context, m *member) {
	var list discoveryv1.EndpointSliceList
	s.list(ctx, m, &list)
	for i := range list.Items {
		o := &list.Items[i]
		inExchange := o.Labels[model.LabelExportNamespace] == s.namespace
		if !model.IsManaged(o) || o.Namespace != s.namespace && !inExchange {
			continue
		}
		// Which slice got the plain name depends on which came first.
		key := fmt.Sprintf("%s of %s from %s in %s", o.Annotations[model.AnnotationSourceSlice],
			o.Labels[model.LabelServiceName]+o.Labels[model.LabelExportName], o.Labels[model.LabelSourceCluster],
			strings.ReplaceAll(o.Namespace, s.namespace, "<namespace>"))
		s.add(m, "EndpointSlice", key, map[string]any{
			"labels": o.Labels, "type": o.AddressType, "endpoints": o.Endpoints, "ports": o.Ports,
		})
	}
}

func (s snapshot) imports(ctx context.Context, m *member) {
	var list mcsv1beta1.ServiceImportList
	s.list(ctx, m, &list, client.InNamespace(s.namespace))
	for i := range list.Items {
		o := &list.Items[i]
		if !model.IsManaged(o) {
			continue
		}
		derived := &corev1.Service{}
		key := types.NamespacedName{Namespace: s.namespace, Name: o.Annotations[model.AnnotationDerivedName]}
		sameIPs := m.client.Get(ctx, key, derived) == nil &&
			(derived.Spec.ClusterIP == corev1.ClusterIPNone || slices.Equal(derived.Spec.ClusterIPs, o.Spec.IPs))
		spec := o.Spec.DeepCopy()
		spec.IPs = addressless(spec.IPs)
		var clusters []string
		for _, c := range o.Status.Clusters {
			clusters = append(clusters, c.Cluster)
		}
		slices.Sort(clusters)
		s.add(m, "ServiceImport", o.Name, map[string]any{
			"labels": o.Labels, "derived": key.Name, "IPs are the derived Service's": sameIPs, "spec": spec, "clusters": clusters,
			"slices": o.Status.EndpointSliceObjects, "conditions": reasons(o.Status.Conditions),
		})
	}
}

func (s snapshot) records(ctx context.Context, m *member) {
	var list exchangev1alpha1.ExportRecordList
	s.list(ctx, m, &list)
	for i := range list.Items {
		o := &list.Items[i]
		// What was published in between, and withdrawn since, depends on the moments of the kills.
		if !strings.HasSuffix(o.Name, "."+s.namespace) || o.Spec.Withdrawn {
			continue
		}
		spec := o.Spec.DeepCopy()
		spec.ExportUID, spec.ExportedAt, spec.ExportVersion = "", metav1.Time{}, ""
		s.add(m, "ExportRecord", o.Namespace+"/"+strings.TrimSuffix(o.Name, "."+s.namespace), spec)
	}
}

func (s snapshot) exports(ctx context.Context, m *member) {
	var list mcsv1beta1.ServiceExportList
	s.list(ctx, m, &list, client.InNamespace(s.namespace))
	for i := range list.Items {
		s.add(m, "ServiceExport", list.Items[i].Name, reasons(list.Items[i].Status.Conditions))
	}
}

// reasons are conditions without times and messages, in order.
func reasons(conditions []metav1.Condition) []string {
	var out []string
	for _, c := range conditions {
		reason := c.Reason
		if reason == condition.ReasonDecidersDiffer { // which export joined first depends on the moments of the kills
			reason = model.ReasonImported
		}
		out = append(out, c.Type+"="+string(c.Status)+"/"+reason)
	}
	slices.Sort(out)
	return out
}
