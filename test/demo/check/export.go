// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package check checks whether a cluster holds what the demo says it does.
//
// It takes members and what is exported, reads the objects behind it, and gives
// nil or an error with what was expected and what was found instead. The truth
// that imports are held against is in the source clusters: their Pods. It waits
// for nothing and changes nothing.
package check

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/demo/world"
)

// Export is one Service that is exported.
type Export struct {
	Namespace, Name string
	Headless        bool
	// Pods is how many Pods serve it in each cluster that exports it.
	Pods map[string]int
	// Port is the name of its port; empty if it has none.
	Port string
	// Number is the number of its port.
	Number int
	// Scope is what may import it; nil is every cluster. A cluster that exports
	// it imports it too.
	Scope []string
}

// String is namespace/name.
func (e Export) String() string { return e.key().String() }

// Host is its name in DNS.
func (e Export) Host() string { return e.Name + "." + e.Namespace + ".svc.clusterset.local" }

// Sources are the clusters that export it, in order.
func (e Export) Sources() []string { return slices.Sorted(maps.Keys(e.Pods)) }

// Reaches reports whether a cluster imports it.
func (e Export) Reaches(cluster string) bool {
	_, exports := e.Pods[cluster]
	return exports || e.Scope == nil || slices.Contains(e.Scope, cluster)
}

func (e Export) key() types.NamespacedName {
	return types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
}

// Exported checks the conditions of a ServiceExport; conflict is what Conflict
// should be.
func Exported(ctx context.Context, m *world.Member, e Export, conflict metav1.ConditionStatus) error {
	var export mcsv1beta1.ServiceExport
	if err := m.Client.Get(ctx, e.key(), &export); err != nil {
		return fmt.Errorf("ServiceExport %s in %s: %w", e, m.ID(), err)
	}
	for _, want := range []struct {
		condition string
		status    metav1.ConditionStatus
	}{
		{condition.TypeValid, metav1.ConditionTrue},
		{condition.TypeReady, metav1.ConditionTrue},
		{condition.TypeAdmitted, metav1.ConditionTrue},
		{condition.TypeConflict, conflict},
	} {
		if err := hasCondition(export.Status.Conditions, want.condition, want.status); err != nil {
			return fmt.Errorf("ServiceExport %s in %s: %w", e, m.ID(), err)
		}
	}
	return nil
}

func hasCondition(all []metav1.Condition, name string, want metav1.ConditionStatus) error {
	found := meta.FindStatusCondition(all, name)
	if found == nil {
		return fmt.Errorf("expected condition %s=%s, there is none", name, want)
	}
	if found.Status != want {
		return fmt.Errorf("expected condition %s=%s, got %s (%s: %s)", name, want, found.Status, found.Reason, found.Message)
	}
	return nil
}

// PodIPs are the addresses of the Pods that serve e in a source cluster: as
// many as it should have, sorted.
func PodIPs(ctx context.Context, m *world.Member, e Export) ([]string, error) {
	return pods(ctx, m, e, func(pod corev1.Pod) string { return pod.Status.PodIP })
}

// PodNames are the names of the same Pods, sorted.
func PodNames(ctx context.Context, m *world.Member, e Export) ([]string, error) {
	return pods(ctx, m, e, func(pod corev1.Pod) string { return pod.Name })
}

func pods(ctx context.Context, m *world.Member, e Export, of func(corev1.Pod) string) ([]string, error) {
	var service corev1.Service
	if err := m.Client.Get(ctx, e.key(), &service); err != nil {
		return nil, fmt.Errorf("read Service %s in %s: %w", e, m.ID(), err)
	}
	var pods corev1.PodList
	err := m.Client.List(ctx, &pods, client.InNamespace(e.Namespace), client.MatchingLabels(service.Spec.Selector))
	if err != nil {
		return nil, fmt.Errorf("list the Pods of %s in %s: %w", e, m.ID(), err)
	}
	var values []string
	for _, pod := range pods.Items {
		if pod.Status.PodIP != "" && pod.DeletionTimestamp == nil {
			values = append(values, of(pod))
		}
	}
	if want := e.Pods[m.ID()]; len(values) != want {
		return nil, fmt.Errorf("expected %d Pods of Service %s in %s with an address, got %d", want, e, m.ID(), len(values))
	}
	slices.Sort(values)
	return values, nil
}

// PublishedIn checks in which exchange namespaces of a cluster e is published.
func PublishedIn(ctx context.Context, m *world.Member, e Export, want []string) error {
	var records exchangev1alpha1.ExportRecordList
	if err := m.Client.List(ctx, &records); err != nil {
		return fmt.Errorf("list the ExportRecords in %s: %w", m.ID(), err)
	}
	var found []string
	for _, record := range records.Items {
		if record.Name == model.RecordName(e.Namespace, e.Name) && !record.Spec.Withdrawn {
			found = append(found, record.Namespace)
		}
	}
	return same(fmt.Sprintf("namespaces of %s with an ExportRecord of %s", m.ID(), e), want, found)
}
