// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/app"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/envtest/suite"
	"github.com/comity-mcs/comity/test/install"
)

func TestDiagnose(t *testing.T) {
	suite.Run(t, "diagnose", suite.Waits{Soon: 20 * time.Second, Poll: 100 * time.Millisecond})
}

const comity = join.DefaultNamespace

// api are clients of the clusters a and b.
var api = map[string]client.Client{}

var _ = BeforeSuite(func(ctx SpecContext) {
	file := clientcmdapi.NewConfig()
	var members []join.Cluster
	for i, config := range suite.Start(suite.APIServer(), suite.APIServer()) {
		name := string(rune('a' + i))
		api[name] = suite.Client(config)
		file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
		file.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
		file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		installAgent(ctx, name, config, fmt.Sprintf("10.%d.0.0/16", i+1))
		members = append(members, join.Cluster{ID: model.ClusterID(name), Set: "example", RESTConfig: config})
	}
	file.Clusters["dead"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1", CertificateAuthorityData: file.Clusters["a"].CertificateAuthorityData}
	file.Contexts["dead"] = &clientcmdapi.Context{Cluster: "dead", AuthInfo: "a"}
	file.CurrentContext = "a"
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*file, kubeconfig)).To(Succeed())
	GinkgoT().Setenv("KUBECONFIG", kubeconfig)

	Expect(install.Join(ctx, nil, members, join.Options{})).To(Succeed())
	for _, c := range api {
		connect(ctx, c)
	}
})

// installAgent makes what an installed agent and its cluster show.
func installAgent(ctx context.Context, name string, config *rest.Config, pods string) {
	GinkgoHelper()
	c := api[name]
	Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: comity}})).To(Succeed())
	for _, manifest := range []string{"clusterrole", "clusterrolebinding", "role", "rolebinding"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "rbac", manifest+".yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(clusters.Apply(ctx, config, text)).To(Succeed())
	}
	certificate, err := install.NewCertificate(comity)
	Expect(err).NotTo(HaveOccurred())
	labels := map[string]string{"app.kubernetes.io/name": "comity"}
	spec := corev1.PodSpec{
		Containers: []corev1.Container{{Name: "comity", Image: "comity:test"}},
		Volumes:    []corev1.Volume{{Name: "cert", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "comity-webhook-cert"}}}},
	}
	info := model.AgentInfo{ID: model.ClusterID(name), Set: "example", Version: command.Version, Mode: model.ExchangeMesh, ServiceAccount: "comity"}
	hook := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: comity, Name: "comity-webhook"}, CABundle: certificate.CA}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: comity, Name: "comity-0", Labels: labels}, Spec: spec}
	for _, object := range append(coreDNS(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: comity, Name: "default"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: comity, Name: "comity-webhook-cert", Annotations: map[string]string{"cert-manager.io/certificate-name": "comity-webhook"}},
			Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: certificate.Cert, corev1.TLSPrivateKeyKey: certificate.Key}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: comity, Name: "comity", Labels: labels}, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: comity, Name: model.LeaderLease, Annotations: info.Annotations()},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("comity-0_1234"), RenewTime: ptr.To(metav1.NowMicro())}},
		// Without a rule they are never called.
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "comity", Labels: labels}, Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "mutate.comity.dev", ClientConfig: hook, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "comity", Labels: labels}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "validate.comity.dev", ClientConfig: hook, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "zone-1"}}, Spec: corev1.NodeSpec{PodCIDR: pods, PodCIDRs: []string{pods}}},
		pod,
	) {
		Expect(c.Create(ctx, object)).To(Succeed())
	}
	runs(ctx, c, pod, corev1.PodRunning)
}

// runs says what the kubelet would of the leader.
func runs(ctx context.Context, c client.Client, pod *corev1.Pod, phase corev1.PodPhase) {
	GinkgoHelper()
	pod.Status.Phase = phase
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	Expect(c.Status().Update(ctx, pod)).To(Succeed())
}

// connect says what the agent would of its Peers.
func connect(ctx context.Context, c client.Client) {
	GinkgoHelper()
	var peers v1alpha1.PeerList
	Expect(c.List(ctx, &peers)).To(Succeed())
	for i := range peers.Items {
		for _, kind := range []string{v1alpha1.PeerConnected, v1alpha1.PeerAccepted, v1alpha1.PeerRecordsValid, v1alpha1.PeerWithinLimits, v1alpha1.PeerComplete} {
			meta.SetStatusCondition(&peers.Items[i].Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test"})
		}
		Expect(c.Status().Update(ctx, &peers.Items[i])).To(Succeed())
	}
}

const corefile = `.:53 {
    kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {
       multicluster clusterset.local
    }
}
`

// coreDNS is what kubeadm and coredns enable make.
func coreDNS() []client.Object {
	labels := map[string]string{"k8s-app": "kube-dns"}
	own := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "coredns"}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: own, Data: map[string]string{"Corefile": corefile}},
		&appsv1.Deployment{ObjectMeta: own, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{ServiceAccountName: "coredns", Containers: []corev1.Container{{Name: "coredns", Image: "registry.k8s.io/coredns/coredns:v1.12.4"}}}}}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "comity-coredns"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"serviceimports"}, Verbs: []string{"list", "watch"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "comity-coredns"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "comity-coredns"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: "coredns"}}},
	}
}

// outcome is what a command printed and how it ended.
type outcome struct {
	out, err string
	code     int
}

// run runs the plugin as a process would.
func run(ctx context.Context, args ...string) outcome {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	code := app.Run(ctx, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, args)
	return outcome{out.String(), errOut.String(), code}
}

// create makes objects for one spec.
func create(cluster string, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(api[cluster].Create(context.Background(), object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(api[cluster].Delete(ctx, object, client.GracePeriodSeconds(0)))).To(Succeed())
		})
	}
}

// change changes an object for one spec.
func change[T client.Object](cluster string, object T, edit func(T)) {
	GinkgoHelper()
	key := client.ObjectKeyFromObject(object)
	Expect(api[cluster].Get(context.Background(), key, object)).To(Succeed())
	before := object.DeepCopyObject().(T)
	edit(object)
	Expect(api[cluster].Update(context.Background(), object)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(api[cluster].Get(ctx, key, object)).To(Succeed())
		before.SetResourceVersion(object.GetResourceVersion())
		Expect(api[cluster].Update(ctx, before)).To(Succeed())
	})
}

// named is metadata.
func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// expired is a certificate of the webhook that is not valid any more.
func expired() []byte {
	GinkgoHelper()
	cert, _, err := certutil.GenerateSelfSignedCertKeyWithOptions(certutil.SelfSignedCertKeyOptions{Host: "comity-webhook." + comity + ".svc", MaxAge: time.Minute})
	Expect(err).NotTo(HaveOccurred())
	return cert
}
