// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
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

// peerSecret is a peer's, with a token that ends at a time.
func peerSecret(namespace, id string, expires time.Time) *corev1.Secret {
	GinkgoHelper()
	claims, err := json.Marshal(map[string]any{"iat": expires.Add(-24 * time.Hour).Unix(), "exp": expires.Unix(), "sub": "system:serviceaccount:comity-system:peer-a"})
	Expect(err).NotTo(HaveOccurred())
	token := "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: %[1]s
clusters: [{name: %[1]s, cluster: {server: "https://%[1]s.example:6443", certificate-authority-data: %[3]s}}]
users: [{name: u, user: {token: %[2]s}}]
contexts: [{name: %[1]s, context: {cluster: %[1]s, user: u}}]
`, id, token, base64.StdEncoding.EncodeToString(target.REST.CAData))
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "peer-" + id, Labels: map[string]string{model.LabelClusterID: id, model.LabelClusterSet: "example"}},
		Data:       map[string][]byte{"kubeconfig": []byte(kubeconfig)},
	}
}

var _ = Describe("the agent", func() {
	It("is found by its Lease", func() {
		namespace := newNamespace()
		install(namespace, true)
		found, err := agent.Find(scratch, target)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.ID).To(Equal(model.ClusterID("a")))
		Expect(found.Namespace).To(Equal(namespace))
		Expect(found.Pod).To(Equal("comity-0"))
		Expect(found.Container.Image).To(Equal("comity:test"))
		got := run("version", "a")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(MatchRegexp(`a +a +%s +dev`, namespace))
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
		Expect(err).To(MatchError(agent.ErrSeveral))
		Expect(err.Error()).To(And(ContainSubstring(first), ContainSubstring(second)))
	})
	It("is known although no replica leads", func() {
		install(newNamespace(), false)
		found, err := agent.Find(scratch, target)
		Expect(err).To(MatchError(agent.ErrNotRunning))
		Expect(found.ID).To(Equal(model.ClusterID("a")))
	})
})

var _ = Describe("status", func() {
	read := func(metrics string) status.Report {
		GinkgoHelper()
		reader := status.Reader{Metrics: func(context.Context, *command.Target, agent.Agent) (string, error) { return metrics, nil }}
		return reader.Read(scratch, []status.Site{{Context: "a", Target: target}})
	}
	contact := func(id, state string) string {
		return fmt.Sprintf("comity_peer_contact{peer=%q,state=%q} 1\n", id, state)
	}

	It("is healthy where the agent runs and hears of its peer", func() {
		namespace := newNamespace()
		install(namespace, true)
		create(peerSecret(namespace, "b", time.Now().Add(20*time.Hour)))
		report := read(contact("b", "Connected"))
		Expect(report.Problems).To(BeEmpty())
		Expect(report.Healthy).To(BeTrue())
		Expect(report.Clusters[0].State).To(Equal(status.Running))
		Expect(report.Clusters[0].Peers).To(HaveLen(1))
		Expect(report.Clusters[0].Peers[0].State).To(Equal(status.Connected))
		Expect(report.Clusters[0].Peers[0].Since).NotTo(BeNil())
	})
	It("says that a member was off for longer than its tokens live", func() {
		namespace := newNamespace()
		install(namespace, true)
		create(peerSecret(namespace, "b", time.Now().Add(-time.Hour)))
		report := read(contact("b", "Lost"))
		Expect(report.Healthy).To(BeFalse())
		Expect(report.Clusters[0].Peers[0].State).To(Equal(status.Expired))
		Expect(report.Problems[0].Message).To(ContainSubstring("run kubectl comity join"))
	})
	It("says which peer is lost, and why", func() {
		namespace := newNamespace()
		install(namespace, true)
		secret := peerSecret(namespace, "b", time.Now().Add(time.Hour))
		create(secret, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: "lost"},
			InvolvedObject: corev1.ObjectReference{Kind: "Secret", Namespace: namespace, Name: secret.Name},
			Type:           corev1.EventTypeWarning, Reason: "Lost", Message: "cluster b was not heard of: Unreachable", FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
		})
		report := read(contact("b", "Lost"))
		Expect(report.Problems).To(ConsistOf(status.Problem{Context: "a", Object: "peer b", Message: "Lost: cluster b was not heard of: Unreachable"}))
		Expect(report.Clusters[0].Peers[0].Since).NotTo(BeNil())
	})
	It("reports a Secret that the agent does not use", func() {
		namespace := newNamespace()
		install(namespace, true)
		create(peerSecret(namespace, "b", time.Now().Add(time.Hour)))
		Expect(read("").Clusters[0].Peers[0].State).To(Equal(status.NotUsed))
	})
	It("names a peer whose Secret lost its label, and one whose Secret is missing", func() {
		namespace := newNamespace()
		install(namespace, true)
		secret := peerSecret(namespace, "b", time.Now().Add(time.Hour))
		delete(secret.Labels, model.LabelClusterID)
		warning := func(name, kind, about, reason, message string) *corev1.Event {
			return &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: about},
				Type: corev1.EventTypeWarning, Reason: reason, Message: message, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
			}
		}
		create(secret, warning("refused", "Secret", secret.Name, "InvalidClusterID", "the label is missing"),
			warning("missing", "Namespace", namespace, "PeerSecretMissing", "Secret x/peer-c, through which cluster c is read, is missing"))
		report := read("comity_peer_synced{peer=\"b\"} 0\ncomity_peer_synced{peer=\"c\"} 0\n")
		Expect(report.Problems).To(ConsistOf(
			status.Problem{Context: "a", Object: "peer b", Message: "NotUsed: the label is missing"},
			status.Problem{Context: "a", Object: "peer c", Message: "NotUsed: Secret x/peer-c, through which cluster c is read, is missing"},
		))
	})
	It("shows the conditions of exports, and the bad ones as problems", func() {
		namespace := newNamespace()
		install(namespace, true)
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
		create(export)
		export.Status.Conditions = []metav1.Condition{
			{Type: "Ready", Status: "True", Reason: "Exported", LastTransitionTime: metav1.Now()},
			{Type: "Available", Status: "False", Reason: "NamespaceMissing", Message: "imported by 0 of 1 clusters", LastTransitionTime: metav1.Now()},
		}
		Expect(target.Client.Status().Update(scratch, export)).To(Succeed())
		report := read("")
		Expect(report.Services).To(HaveLen(1))
		Expect(report.Services[0].Conditions).To(HaveKey("Ready"))
		Expect(report.Problems).To(ConsistOf(status.Problem{Context: "a", Object: "ServiceExport " + namespace + "/web",
			Message: "Available is False (NamespaceMissing): imported by 0 of 1 clusters"}))
	})
	It("exits with 1 and says what to do where nothing is installed, or nobody answers", func() {
		got := run("status", "a", "dead")
		Expect(got.code).To(Equal(1))
		Expect(got.out).To(And(ContainSubstring("NotInstalled"), ContainSubstring("Unreachable"), ContainSubstring("docs/install.md")))
		Expect(run("status", "a", "-o", "json").out).To(And(ContainSubstring(`"kind": "ClusterSetStatus"`), ContainSubstring(`"healthy": false`)))
	})
})
