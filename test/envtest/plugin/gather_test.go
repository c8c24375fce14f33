// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// unpack gives the files of an archive, without the folder that has its time.
func unpack(file string) map[string]string {
	GinkgoHelper()
	packed, err := os.Open(file)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = packed.Close() }()
	unzipped, err := gzip.NewReader(packed)
	Expect(err).NotTo(HaveOccurred())
	files := map[string]string{}
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Expect(err).NotTo(HaveOccurred())
		content, err := io.ReadAll(reader)
		Expect(err).NotTo(HaveOccurred())
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(content)
	}
}

var _ = Describe("gather", func() {
	const secret = "c2VjcmV0LWNvbnRlbnQ" // as text, and encoded once more in the Secret

	It("takes what a bug report needs, and no secret", func() {
		namespace := newNamespace()
		install(namespace, true)
		create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}}, Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}}})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "comity-0"}}
		Expect(target.Client.SubResource("binding").Create(scratch, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}})).To(Succeed())
		Expect(target.Client.Get(scratch, types.NamespacedName{Namespace: namespace, Name: "comity-0"}, pod)).To(Succeed())
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "comity", RestartCount: 1}}
		Expect(target.Client.Status().Update(scratch, pod)).To(Succeed())
		peer("b", nil, good()...)
		create(
			&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "peer-b", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: secret}},
				StringData: map[string]string{"kubeconfig": secret},
			},
			&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: secret}}},
			&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "derived-1-b", Labels: map[string]string{
				model.LabelServiceName: "web", model.LabelSourceCluster: "b"}}, AddressType: discoveryv1.AddressTypeIPv4},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "coredns"}, Data: map[string]string{"Corefile": ".:53 {\n  errors\n}\n"}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "of-somebody-else"}, Data: map[string]string{"a": secret}},
			&corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "event"}, InvolvedObject: corev1.ObjectReference{Namespace: namespace, Name: "web", Kind: "ServiceExport"},
				Reason: "NoService", Message: "there is no Service", ReportingController: model.FieldOwner, ReportingInstance: "comity-0", Action: "Valid", Type: corev1.EventTypeWarning,
				EventTime: metav1.NowMicro(),
			},
		)
		imported(namespace, "web", nil)
		file := filepath.Join(GinkgoT().TempDir(), "report.tar.gz")

		got := run("gather", "a", "dead", "--file", file)
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(HavePrefix("clusters:\n- context: a\n  notTaken:\n"))
		Expect(got.out).To(ContainSubstring("\n    logs/comity-0.comity.log: "), "no kubelet has it")
		Expect(got.out).To(ContainSubstring("\n    logs/comity-0.comity.previous.log: "))
		Expect(got.out).To(ContainSubstring("\n    agent/Deployment.yaml: 1\n"))
		Expect(got.out).To(MatchRegexp("\n- context: dead\n  notTaken:\n    agent: (?s:.*)connection\\s+refused"))
		Expect(got.out).To(ContainSubstring("\nfile: " + file + "\nplugin: dev\n"))
		info, err := os.Stat(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))

		files := unpack(file)
		for name, content := range files {
			Expect(content).NotTo(ContainSubstring(secret), name)
			Expect(content).NotTo(ContainSubstring("managedFields"), name)
		}
		for name, content := range map[string]string{
			"contents.yaml": "comity/ServiceExport.yaml: 1",
			"status.yaml":   "dead", "diagnose.yaml": "check: definitions",
			"comity/Peer.yaml": "kubeconfigSecret: peer-b", "comity/ServiceExport.yaml": "name: web", "comity/ServiceImport.yaml": "name: web",
			"comity/Event.yaml": "there is no Service", "derived/Service.yaml": model.DerivedName("web"), "derived/EndpointSlice.yaml": "derived-1-b",
			"agent/Deployment.yaml": "image: comity:test", "agent/Pod.yaml": "comity-0", "agent/Lease.yaml": model.LeaderLease, "agent/Secret.yaml": "- kubeconfig",
			"dns/ConfigMap.yaml": "Corefile", "nodes/Node.yaml": "10.1.0.0/24",
		} {
			if strings.Contains(name, "/") {
				name = path.Join("cluster-a", name)
			}
			Expect(files).To(HaveKeyWithValue(name, ContainSubstring(content)))
		}
		Expect(got.out).To(HavePrefix(files["contents.yaml"]))
		Expect(files["cluster-a/dns/ConfigMap.yaml"]).NotTo(ContainSubstring("of-somebody-else"))
		Expect(files["cluster-a/agent/Secret.yaml"]).NotTo(ContainSubstring(" data:"))

		again := run("gather", "a", "--file", file)
		Expect(again.code).To(Equal(2), "the file exists")
		Expect(again.err).To(ContainSubstring("file exists"))
	})

	It("leaves no file behind if it is refused", func() {
		folder := GinkgoT().TempDir()
		Expect(run("gather", "nowhere", "--file", filepath.Join(folder, "f")).code).To(Equal(2))
		left, err := os.ReadDir(folder)
		Expect(err).NotTo(HaveOccurred())
		Expect(left).To(BeEmpty())
	})
})
