// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// install makes what an installed agent shows: its Lease, its Deployment and,
// if it leads, the leader's Pod.
func install(namespace string, leads bool) {
	GinkgoHelper()
	info := model.AgentInfo{ID: "a", Set: "example", Version: command.Version, Mode: model.ExchangeMesh, ServiceAccount: "comity"}
	labels := map[string]string{"app.kubernetes.io/name": "comity"}
	containers := []corev1.Container{{Name: "comity", Image: "comity:test", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 8080}}}}
	create(
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "comity", Labels: labels}, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: containers}}}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: model.LeaderLease, Annotations: info.Annotations()},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("comity-0_1234"), RenewTime: ptr.To(metav1.NowMicro())}},
	)
	if !leads {
		return
	}
	create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "comity-0", Labels: labels}, Spec: corev1.PodSpec{Containers: containers}}
	create(pod)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	Expect(target.Client.Status().Update(scratch, pod)).To(Succeed())
}

// peer makes a Peer with these conditions, which the agent would set.
func peer(id string, change func(*exchangev1alpha1.Peer), conditions ...metav1.Condition) *exchangev1alpha1.Peer {
	GinkgoHelper()
	p := &exchangev1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       exchangev1alpha1.PeerSpec{ClusterSet: "example", ClusterUID: "of-" + types.UID(id), KubeconfigSecret: "peer-" + id},
	}
	if change != nil {
		change(p)
	}
	create(p)
	p.Status.Conditions, p.Status.TokenExpires = conditions, &metav1.Time{Time: time.Now().Add(20 * time.Hour)}
	Expect(target.Client.Status().Update(scratch, p)).To(Succeed())
	return p
}

func is(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
}

// good are the conditions of a Peer with which nothing is wrong, but for those of others.
func good(others ...metav1.Condition) []metav1.Condition {
	for _, kind := range []string{
		exchangev1alpha1.PeerConnected, exchangev1alpha1.PeerAccepted, exchangev1alpha1.PeerRecordsValid, exchangev1alpha1.PeerWithinLimits, exchangev1alpha1.PeerComplete,
	} {
		if meta.FindStatusCondition(others, kind) == nil {
			others = append(others, is(kind, metav1.ConditionTrue, "Test", ""))
		}
	}
	return others
}

// entry is one of a list.
func entry(id model.ClusterID, uid types.UID, absent model.SourceState, since time.Time) model.Entry {
	return model.Entry{SourceExport: model.SourceExport{Cluster: id, UID: uid, CreatedAt: time.Unix(1_750_000_000, 0)}, Absent: absent, Since: since}
}

// older is an entry that waits if a younger one is before it.
func older(e model.Entry) model.Entry {
	e.CreatedAt = e.CreatedAt.Add(-time.Hour)
	return e
}

// imported makes a ServiceImport and its derived Service with a list, as the agent does.
func imported(namespace, name string, conditions []metav1.Condition, entries ...model.Entry) *mcsv1beta1.ServiceImport {
	GinkgoHelper()
	list := model.List{Formed: time.Unix(1_800_000_000, 0), Entries: entries}.String()
	for _, object := range []map[string]any{
		{"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}},
		{"apiVersion": mcsv1beta1.GroupVersion.String(), "kind": "ServiceImport", "spec": map[string]any{"type": "ClusterSetIP", "ports": []any{map[string]any{"port": int64(80), "protocol": "TCP"}}}},
	} {
		own := name
		if object["kind"] == "Service" {
			own = model.DerivedName(name)
		}
		object["metadata"] = map[string]any{
			"namespace": namespace, "name": own, "labels": map[string]any{model.LabelServiceName: name}, "annotations": map[string]any{model.AnnotationList: list},
		}
		u := &unstructured.Unstructured{Object: object}
		Expect(target.Client.Apply(scratch, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(model.FieldOwner))).To(Succeed())
		DeferCleanup(func() { Expect(client.IgnoreNotFound(target.Client.Delete(scratch, u))).To(Succeed()) })
	}
	found := &mcsv1beta1.ServiceImport{}
	Expect(target.Client.Get(scratch, types.NamespacedName{Namespace: namespace, Name: name}, found)).To(Succeed())
	found.Status.Conditions = conditions
	Expect(target.Client.Status().Update(scratch, found)).To(Succeed())
	return found
}

var _ = Describe("the agent", func() {
	It("is found by its Lease", func() {
		namespace := newNamespace()
		install(namespace, true)
		found, err := agent.Find(scratch, target)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.ID).To(Equal(model.ClusterID("a")))
		Expect(found.Namespace).To(Equal(namespace))
		Expect(found.Pod.Name).To(Equal("comity-0"))
		Expect(found.Container().Image).To(Equal("comity:test"))
		got := run("status", "a")
		Expect(got.out).To(MatchRegexp(`a +a +\S+ +dev`), got.err)
	})
	It("is not installed where only a Lease was left behind", func() {
		create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(), Name: model.LeaderLease}})
		_, err := agent.Find(scratch, target)
		Expect(err).To(MatchError(agent.ErrNotInstalled))
		Expect(err).To(MatchError(HavePrefix(`context "a": no Comity agent is installed`)))
		got := run("verify", "a", "a")
		Expect(got.code).To(Equal(2))
	})
	It("is refused where two releases are installed", func() {
		first, second := newNamespace(), newNamespace()
		install(first, true)
		install(second, true)
		_, err := agent.Find(scratch, target)
		Expect(err).To(MatchError(And(ContainSubstring("more than one Comity agent is installed"), ContainSubstring(first), ContainSubstring(second))))
	})
	It("is known although no replica leads", func() {
		install(newNamespace(), false)
		found, err := agent.Find(scratch, target)
		Expect(err).To(MatchError(agent.ErrNotRunning))
		Expect(found.ID).To(Equal(model.ClusterID("a")))
	})
})

var _ = Describe("status", func() {
	readAfter := func(d time.Duration) status.Report {
		GinkgoHelper()
		site := &agent.Site{Context: "a", Target: target}
		site.Agent, site.Err = agent.Find(scratch, target)
		report, _ := status.Read(scratch, []*agent.Site{site}, "", time.Now().Add(d))
		return report
	}
	read := func() status.Report { return readAfter(0) }
	BeforeEach(func() { install(newNamespace(), true) })

	It("is healthy where the agent runs and its peer is connected", func() {
		peer("b", nil, good()...)
		report := read()
		Expect(report.Problems).To(BeEmpty())
		Expect(report.Healthy).To(BeTrue())
		Expect(report.Clusters[0].State).To(Equal(status.Running))
		Expect(report.Clusters[0].Peers).To(HaveLen(1))
		Expect(report.Clusters[0].Peers[0].State).To(Equal(status.Connected))
		Expect(report.Clusters[0].Peers[0].Since).NotTo(BeNil())
	})
	It("needs no more than the right to read", func() {
		peer("b", nil, good()...)
		reader := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "reader-"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}},
		}
		create(reader)
		create(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "reader-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer"}},
		})
		Eventually(func() string { return run("status", "a", "--as", "viewer").out }).Should(ContainSubstring("Everything is healthy."))
	})
	DescribeTable("says once what is wrong with a peer",
		func(change func(*exchangev1alpha1.Peer), conditions []metav1.Condition, state status.State, problems ...string) {
			peer("b", change, conditions...)
			report := read()
			Expect(report.Clusters[0].Peers[0].State).To(Equal(state))
			var messages []string
			for _, problem := range report.Problems {
				Expect(problem.Object).To(Equal("Peer b"))
				messages = append(messages, problem.Message)
				if problem.Fix != "" {
					messages = append(messages, problem.Fix)
				}
			}
			Expect(messages).To(Equal(problems))
		},
		Entry("lost", nil, good(is("Connected", "False", "Lost", "no heartbeat since noon")), status.Lost, "Connected is False (Lost): no heartbeat since noon"),
		Entry("not accepted, which is why it is not connected", nil, good(is("Accepted", "False", "WrongClusterUID", "run kubectl comity join --replace"), is("Connected", "False", "NotUsed", "it is not accepted")),
			status.NotUsed, "Accepted is False (WrongClusterUID): run kubectl comity join --replace"),
		Entry("refused records", nil, good(is("RecordsValid", "False", "InvalidRecord", "web.shop has no port")), status.Connected, "RecordsValid is False (InvalidRecord): web.shop has no port"),
		Entry("too many records", nil, good(is("WithinLimits", "False", "LimitExceeded", "20,001 records")), status.Connected, "WithinLimits is False (LimitExceeded): 20,001 records"),
		Entry("missing exports", nil, good(is("Complete", "False", "Missing", "3 exports; kubectl comity confirm missing b")), status.Connected, "Complete is False (Missing): 3 exports; kubectl comity confirm missing b"),
		Entry("two causes", nil, good(is("Complete", "False", "Missing", "x"), is("WithinLimits", "False", "LimitExceeded", "y")), status.Connected,
			"WithinLimits is False (LimitExceeded): y", "Complete is False (Missing): x"),
		Entry("a removal that is pending", func(p *exchangev1alpha1.Peer) { p.Spec.Removed = true }, []metav1.Condition{is("Removed", "False", "Removing", "12 imports are left")}, status.Leaving,
			"Leaving: 12 imports are left", "when it is done, repeat: kubectl comity leave --id b a"),
		Entry("a refused change, with the former one in use", nil, good(is("Accepted", "False", "InvalidKubeconfig", "it runs a program")), status.Connected, "Accepted is False (InvalidKubeconfig): it runs a program"),
	)
	It("is one cause that a peer is silent, and the imports that wait for it are counted", func() {
		peer("b", nil, good(is("Connected", "False", "Lost", "no heartbeat"))...)
		namespace := newNamespace()
		for _, name := range []string{"one", "two"} {
			imported(namespace, name, []metav1.Condition{is("Available", "False", "Lost", "b is Lost"), is("Frozen", "True", "NotRead", "cluster b is not read")}, entry("b", "u", "", time.Time{}))
		}
		Expect(read().Problems).To(ConsistOf(finding.Finding{Severity: finding.Error, Cluster: "a", Object: "Peer b", Message: "Connected is False (Lost): no heartbeat", Reason: "Lost", Affects: 4}))
		Expect(run("status", "a").out).To(HavePrefix("Problems:\n  a: Peer b (affects 4 objects): Connected is False (Lost): no heartbeat\n"))
	})
	It("is awaited", func() {
		b := peer("b", nil, good(is("Connected", "False", "Lost", "no heartbeat"))...)
		Expect(run("status", "a", "--wait", "1ms").code).To(Equal(1))
		time.AfterFunc(time.Second, func() {
			defer GinkgoRecover()
			b.Status.Conditions = good()
			Expect(target.Client.Status().Update(scratch, b)).To(Succeed())
		})
		got := run("status", "a", "--wait", "30s")
		Expect(got.code).To(BeZero(), got.out)
		Expect(got.err).To(BeEmpty(), "nothing but the plugin's own words")
	})
	It("gives the agent a minute to connect", func() {
		peer("b", nil)
		peer("c", nil, good(is("Connected", "Unknown", "Connecting", "cluster c is being connected to"))...)
		Expect(read().Problems).To(BeEmpty())
		Expect(readAfter(2 * time.Minute).Problems).To(ConsistOf(
			finding.Finding{Severity: finding.Error, Cluster: "a", Object: "Peer b", Message: "the agent has not set condition Connected of the Peer yet"},
			finding.Finding{Severity: finding.Error, Cluster: "a", Object: "Peer c", Message: "Connected is Unknown (Connecting): cluster c is being connected to", Reason: "Connecting"},
		))
	})
	It("names the clusters of imports that have no Peer", func() {
		namespace := newNamespace()
		imported(namespace, "one", nil, entry("a", "own", "", time.Time{}), entry("b", "u", "", time.Time{}), entry("gone", "v", "", time.Time{}))
		imported(namespace, "two", nil, entry("gone", "v", "", time.Time{}))
		peer("b", nil, good()...)
		Expect(read().Problems).To(ConsistOf(finding.Finding{Severity: finding.Error, Cluster: "a", Object: "Peer gone", Message: "there is no Peer; what is imported from the cluster stays, such as " + namespace + "/one",
			Affects: 1, Fix: "join it again, or: kubectl comity leave --id gone a"}))
	})
	It("has one line for each cluster and cause of imports that wait", func() {
		peer("b", nil, good()...)
		peer("c", nil, good()...)
		namespace := newNamespace()
		held := func(id string) []metav1.Condition {
			return []metav1.Condition{is("TakeoverHeld", "True", "TakeoverHeld", "cluster "+id+" waits: kubectl comity confirm takeover x/y --from "+id)}
		}
		for i := range 12 {
			imported(namespace, fmt.Sprintf("held-%02d", i), held("c"), entry("b", "u", "", time.Time{}), older(entry("c", "uid-c", "", time.Time{})))
		}
		imported(namespace, "single", held("b"), entry("c", "u", "", time.Time{}), older(entry("b", "uid-b", "", time.Time{})))
		Expect(read().Problems).To(ConsistOf(
			finding.Finding{Severity: finding.Error, Cluster: "a", Object: "ServiceImport " + namespace + "/single", Message: "TakeoverHeld is True (TakeoverHeld): " + held("b")[0].Message, Reason: "TakeoverHeld",
				Fix: "kubectl comity confirm takeover --all --from b --context a"},
			finding.Finding{Severity: finding.Error, Cluster: "a", Object: "ServiceImport " + namespace + "/held-00", Message: "TakeoverHeld is True (TakeoverHeld): " + held("c")[0].Message, Reason: "TakeoverHeld",
				Affects: 11, Fix: "kubectl comity confirm takeover --all --from c --context a"},
		))
	})
	It("has one line for the exports that a restore lost, and the command", func() {
		namespace := newNamespace()
		for _, name := range []string{"web", "db"} {
			lose(&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "lost"}})
		}
		Expect(read().Problems).To(ConsistOf(finding.Finding{Severity: finding.Error, Cluster: "a", Object: "exports of cluster a",
			Message: "Lost: their ServiceExports disappeared with a restore, and they stay published, such as " + namespace + "/db",
			Affects: 1, Fix: "create these again, or: kubectl comity confirm lost --all --context a"}))
	})
	It("shows the conditions of exports, and the bad ones as problems", func() {
		namespace := newNamespace()
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
		create(export)
		export.Status.Conditions = []metav1.Condition{
			{Type: "Ready", Status: "True", Reason: "Exported", LastTransitionTime: metav1.Now()},
			{Type: "Available", Status: "False", Reason: "NamespaceMissing", Message: "imported by 0 of 1 clusters", LastTransitionTime: metav1.Now()},
		}
		Expect(target.Client.Status().Update(scratch, export)).To(Succeed())
		report := read()
		Expect(report.Services).To(HaveLen(1))
		Expect(report.Services[0].Conditions).To(ContainElement(HaveField("Type", "Ready")))
		Expect(report.Problems).To(ConsistOf(finding.Finding{Severity: finding.Error, Cluster: "a", Object: "ServiceExport " + namespace + "/web",
			Message: "Available is False (NamespaceMissing): imported by 0 of 1 clusters", Reason: "NamespaceMissing"}))
	})
})

var _ = Describe("status without an agent", func() {
	// Exchange namespaces of other specs, which cannot be deleted here, would make the cluster a hub.
	BeforeEach(func() {
		var all corev1.NamespaceList
		Expect(target.Client.List(scratch, &all, client.HasLabels{model.LabelExchangeFrom})).To(Succeed())
		for i := range all.Items {
			ns := &all.Items[i]
			label := func(value string) {
				patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, model.LabelExchangeFrom, value)
				Expect(target.Client.Patch(scratch, ns, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
			}
			before := ns.Labels[model.LabelExchangeFrom]
			label("null")
			DeferCleanup(func() { label(fmt.Sprintf("%q", before)) })
		}
	})

	It("exits with 1 and says what to do where nothing is installed, or nobody answers", func() {
		got := run("status", "a", "dead")
		Expect(got.code).To(Equal(1))
		Expect(got.out).To(And(ContainSubstring("NotInstalled"), ContainSubstring("Unreachable"), ContainSubstring("docs/install.md")))
		Expect(run("status", "a", "-o", "json").out).To(And(ContainSubstring(`"kind": "ClusterSetStatus"`), ContainSubstring(`"healthy": false`)))
	})

	publishes := func(id string, annotations map[string]string) {
		create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: model.ExchangeNamespace(model.ClusterID("hub-" + id)), Labels: map[string]string{model.LabelExchangeFrom: id}, Annotations: annotations,
		}})
	}

	It("is that of a hub where a join noted the member that publishes", func() {
		publishes("c", map[string]string{model.AnnotationClusterUID: "1"})
		Expect(run("status", "a").out).To(And(MatchRegexp(`a +.* Hub `), Not(ContainSubstring("NotInstalled"))))
	})

	It("is that of a hub only where several members publish, if a join noted none", func() {
		publishes("a", nil)
		Expect(run("status", "a").out).To(ContainSubstring("NotInstalled"), "Comity was uninstalled")
		publishes("b", nil)
		Expect(run("status", "a").out).To(And(MatchRegexp(`a +.* Hub `), Not(ContainSubstring("NotInstalled"))))
	})
})
