// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

var _ = Describe("When the leader's Pod is deleted in both clusters", Serial, beyond(), func() {
	key := types.NamespacedName{Namespace: "leader", Name: "steady"}

	It("nothing that was written changes, no request fails, and the next leader goes on", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
			m.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP))
		}
		for _, m := range bothMembers() {
			m.create(ctx, newExport(key.Namespace, key.Name))
		}
		var pods []string
		for _, m := range bothMembers() {
			m.expectExported(ctx, key, metav1.ConditionFalse)
			m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a", "b")
			pods = append(pods, m.awaitPods(ctx, key.Namespace, key.Name, 1)...)
		}
		for _, m := range bothMembers() {
			m.expectAnswers(ctx, hostOf(key), servicePort, pods...)
		}
		before := map[string]map[string]string{}
		for _, m := range bothMembers() {
			before[m.ID()] = m.atRest(ctx)
			Expect(before[m.ID()]).To(HaveKey(ContainSubstring("ServiceImport " + key.String())))
			step("in %s: %d objects at rest", m.ID(), len(before[m.ID()]))
		}

		stop := keepAsking(ctx, clusterB, hostOf(key))
		old := map[*member]string{}
		for _, m := range bothMembers() {
			old[m] = m.deleteLeader(ctx)
		}
		for _, m := range bothMembers() {
			m.awaitOtherLeader(ctx, old[m])
		}
		for _, m := range bothMembers() {
			Consistently(ctx, func() string { return m.changedSince(ctx, before[m.ID()]) }).Should(BeEmpty(), "objects of cluster %s", m.ID())
		}
		requests, failed := stop()
		step("%d requests from b meanwhile, failed: %v", requests, failed)
		Expect(failed).To(BeEmpty())
		Expect(requests).To(BeNumerically(">", 50))

		Expect(clusterA.patch(ctx, newServer(key.Namespace, key.Name, 1), replicas(2))).To(Succeed())
		pods = append(clusterA.awaitPods(ctx, key.Namespace, key.Name, 2), clusterB.awaitPods(ctx, key.Namespace, key.Name, 1)...)
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)
	})
})

// written lists, with UID and resource version, all that Comity has to do with: what it
// derived, what it published, and what it wrote a status on. The objects are whole, so that a
// failure says what changed.
func (m *member) written(ctx context.Context) map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	for _, kind := range []struct {
		name string
		list client.ObjectList
		with []client.ListOption
	}{
		{"Service", &corev1.ServiceList{}, []client.ListOption{client.HasLabels{model.LabelServiceName}}},
		{"EndpointSlice", &discoveryv1.EndpointSliceList{}, []client.ListOption{client.MatchingLabels{discoveryv1.LabelManagedBy: model.ManagedBy}}},
		{"ServiceImport", &mcsv1beta1.ServiceImportList{}, nil},
		{"ServiceExport", &mcsv1beta1.ServiceExportList{}, nil},
		{"ExportRecord", &exchangev1alpha1.ExportRecordList{}, nil},
		{"NamespaceRecord", &exchangev1alpha1.NamespaceRecordList{}, nil},
		{"MemberRecord", &exchangev1alpha1.MemberRecordList{}, nil},
	} {
		Expect(m.client.List(ctx, kind.list, kind.with...)).To(Succeed())
		items, err := meta.ExtractList(kind.list)
		Expect(err).NotTo(HaveOccurred())
		for _, item := range items {
			object := item.(client.Object)
			object.SetManagedFields(nil)
			text, err := yaml.Marshal(object)
			Expect(err).NotTo(HaveOccurred())
			found[fmt.Sprintf("%s %s", kind.name, client.ObjectKeyFromObject(object))] = string(text)
		}
	}
	return found
}

// ended is an export in the list of an import that ended. A minute later, its entry goes.
var ended = regexp.MustCompile(`"absent":"(?:Ended|Suspended|Refused)"`)

// atRest is what is written once it no longer changes: earlier specs may have left work. Objects
// that are written again by themselves, because they list an export that ended, are named only.
func (m *member) atRest(ctx context.Context) map[string]string {
	GinkgoHelper()
	last := m.written(ctx)
	since := time.Now()
	Eventually(ctx, func() time.Duration {
		if now := m.written(ctx); !maps.Equal(now, last) {
			last, since = now, time.Now()
		}
		return time.Since(since)
	}).Should(BeNumerically(">", final), "cluster %s comes to no rest", m.ID())
	for name, text := range last {
		if ended.MatchString(text) {
			last[name] = ""
		}
	}
	return last
}

// changedSince says how what is written differs from what was at rest.
func (m *member) changedSince(ctx context.Context, rest map[string]string) string {
	GinkgoHelper()
	now := m.written(ctx)
	for name, text := range rest {
		if text == "" {
			now[name] = ""
		}
	}
	return cmp.Diff(rest, now)
}

// leader is the name of the Pod that holds the lease.
func (m *member) leader(ctx context.Context) (string, error) {
	lease, err := m.typed.CoordinationV1().Leases(install.Namespace).Get(ctx, "comity-leader", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	// The holder is <host>_<random>; a lease that was given up has none.
	name, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	return name, nil
}

// replaceLeader deletes the leader's Pod and waits until another leads.
func (m *member) replaceLeader(ctx context.Context) {
	GinkgoHelper()
	m.awaitOtherLeader(ctx, m.deleteLeader(ctx))
}

// deleteLeader deletes the leader's Pod without a grace period, as `kubectl delete pod --force`
// does, and gives its name.
func (m *member) deleteLeader(ctx context.Context) string {
	GinkgoHelper()
	old, err := m.leader(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(old).NotTo(BeEmpty(), "nobody leads in cluster %s", m.ID())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: old}}
	Expect(m.client.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
	step("in %s: Pod %s, the leader, is deleted", m.ID(), old)
	return old
}

// awaitOtherLeader waits until another than old leads, and all replicas are ready.
func (m *member) awaitOtherLeader(ctx context.Context, old string) {
	GinkgoHelper()
	Eventually(ctx, m.leader).WithArguments(ctx).Should(Not(Or(BeEmpty(), Equal(old))), "nobody else leads in cluster %s", m.ID())
	m.awaitComity(ctx)
	now, err := m.leader(ctx)
	Expect(err).NotTo(HaveOccurred())
	step("in %s: Pod %s leads", m.ID(), now)
}

// pause is what a client rests between two requests, which otherwise take the processors
// from the clusters that answer them.
const pause = 100 * time.Millisecond

// keepAsking sends one request after the other from m, to the name and to its
// address in each IP family in turn, until stop is called, which gives their
// number and what failed. The client Pod gives up after five seconds, for which a
// busy machine may stand still: one such request is sent once more before it counts.
func keepAsking(ctx context.Context, m *member, host string) (stop func() (requests int, failed []error)) {
	GinkgoHelper()
	targets := m.targets(ctx, host)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	requests, failed, late := 0, []error(nil), false
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; idle(ctx, pause) {
			target := targets[requests%len(targets)]
			_, err := m.ask(ctx, target, servicePort, 1)
			if err != nil && !late && strings.Contains(err.Error(), "Client.Timeout") {
				late = true
				step("from %s: asked once more: %v", m.ID(), err)
				_, err = m.ask(ctx, target, servicePort, 1)
			}
			if ctx.Err() != nil {
				return // what was under way was cut off by us
			}
			if requests++; err != nil {
				failed = append(failed, fmt.Errorf("after %s: %w", time.Since(begin), err))
			}
		}
	}()
	return func() (int, []error) {
		cancel()
		<-done
		return requests, failed
	}
}

// idle waits for d, or until ctx ends.
func idle(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
