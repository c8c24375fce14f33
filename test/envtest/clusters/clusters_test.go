// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package clusters_test proves that control planes as plain processes are
// clusters in every respect that Comity's tests rely on.
package clusters_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/config/crd"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
)

const timeout = 30 * time.Second

// TestControlPlanes goes through one pair of clusters; the steps build on each other.
func TestControlPlanes(t *testing.T) {
	ours, err := clusters.Files(crd.FS)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	pair, err := controlplane.Start(t.Context(), controlplane.Options{IDs: []string{"a", "b"}, Manifests: ours, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("two clusters are ready after %v", time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := controlplane.Close(pair); err != nil {
			t.Error(err)
		}
	})
	for _, c := range pair {
		t.Run("Pods of a Deployment in "+c.ID()+" get addresses of its network and an EndpointSlice", func(t *testing.T) { deployment(t, c) })
		t.Run("Pods of a headless StatefulSet in "+c.ID()+" get host names, zones and DNS names", func(t *testing.T) { statefulSet(t, c) })
		t.Run("CoreDNS of "+c.ID()+" answers for its API server and refuses unknown clusterset names", func(t *testing.T) {
			awaitDNS(t, c, "kubernetes.default.svc.cluster.local.", c.Network().ServiceCIDRs[0].Addr().Next().String())
			awaitDNS(t, c, "nothing.default.svc.clusterset.local.")
		})
	}
	a := pair[0]
	t.Run("a Pod marked as unready leaves the ready endpoints and comes back", func(t *testing.T) { readiness(t, a) })
	t.Run("a service account's kubeconfig has that account's rights and its writes are counted", func(t *testing.T) { account(t, a) })
	t.Run("an API server that was killed comes back on the same port with its objects", func(t *testing.T) { crash(t, a) })
	t.Run("a paused API server answers nothing until it is resumed", func(t *testing.T) { freeze(t, a) })
}

func client(t *testing.T, c clusters.Cluster) kubernetes.Interface {
	t.Helper()
	typed, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return typed
}

// await polls until check is content, and fails with its last complaint.
func await(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("after %v: %v", timeout, last)
	}
}

var webLabels = map[string]string{"app": "web"}

func podTemplate(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "none", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
	}
}

func service(name string, labels map[string]string, clusterIP string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: labels, ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}
}

func deployment(t *testing.T, c clusters.Cluster) {
	typed := client(t, c)
	_, err := typed.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3), Template: podTemplate(webLabels),
			Selector: &metav1.LabelSelector{MatchLabels: webLabels}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typed.CoreV1().Services("default").Create(t.Context(), service("web", webLabels, ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Kubernetes may list an endpoint in two slices for a moment.
	addresses := map[string]bool{}
	await(t, func(ctx context.Context) error {
		endpoints, err := readyEndpoints(ctx, typed, "web")
		clear(addresses)
		for _, e := range endpoints {
			addresses[e.Addresses[0]] = true
		}
		if err == nil && (len(endpoints) != 3 || len(addresses) != 3) {
			err = fmt.Errorf("%d endpoints with %d addresses are ready, want 3 of each", len(endpoints), len(addresses))
		}
		return err
	})
	for address := range addresses {
		if !c.Network().PodCIDRs[0].Contains(netip.MustParseAddr(address)) {
			t.Errorf("endpoint %v is outside of the Pod network %v", address, c.Network().PodCIDRs)
		}
	}
}

func readyEndpoints(ctx context.Context, typed kubernetes.Interface, service string) ([]discoveryv1.Endpoint, error) {
	slices, err := typed.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return nil, err
	}
	var ready []discoveryv1.Endpoint
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, false) {
				ready = append(ready, e)
			}
		}
	}
	return ready, nil
}

func statefulSet(t *testing.T, c clusters.Cluster) {
	typed := client(t, c)
	labels := map[string]string{"app": "db"}
	if _, err := typed.CoreV1().Services("default").Create(t.Context(), service("db", labels, corev1.ClusterIPNone), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := typed.AppsV1().StatefulSets("default").Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](2), ServiceName: "db", Template: podTemplate(labels),
			Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var endpoints []discoveryv1.Endpoint
	await(t, func(ctx context.Context) (err error) {
		if endpoints, err = readyEndpoints(ctx, typed, "db"); err == nil && len(endpoints) != 2 {
			err = fmt.Errorf("%d endpoints are ready, want 2", len(endpoints))
		}
		return err
	})
	for _, e := range endpoints {
		host, zone := ptr.Deref(e.Hostname, ""), ptr.Deref(e.Zone, "")
		if !strings.HasPrefix(host, "db-") || !strings.HasPrefix(zone, c.ID()+"-") {
			t.Errorf("endpoint %v has host name %q and zone %q, want db-<n> and %s-<n>", e.Addresses, host, zone, c.ID())
			continue
		}
		awaitDNS(t, c, host+".db.default.svc.cluster.local.", e.Addresses[0])
	}
}

// awaitDNS waits until CoreDNS gives exactly these addresses for a name; none means NXDOMAIN.
func awaitDNS(t *testing.T, c clusters.Cluster, name string, want ...string) {
	t.Helper()
	for _, network := range []string{"udp", "tcp"} {
		await(t, func(ctx context.Context) error {
			question := new(dns.Msg)
			question.SetQuestion(name, dns.TypeA)
			answer, _, err := (&dns.Client{Net: network}).ExchangeContext(ctx, question, c.DNSAddress())
			if err != nil {
				return err
			}
			var have []string
			for _, record := range answer.Answer {
				if a, ok := record.(*dns.A); ok {
					have = append(have, a.A.String())
				}
			}
			if fmt.Sprint(have) != fmt.Sprint(want) || (answer.Rcode == dns.RcodeNameError) != (len(want) == 0) {
				return fmt.Errorf("%s over %s: %v (%s), want %v", name, network, have, dns.RcodeToString[answer.Rcode], want)
			}
			return nil
		})
	}
}

func readiness(t *testing.T, c clusters.Cluster) {
	typed := client(t, c)
	pods, err := typed.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("list the Pods of web: %d, %v", len(pods.Items), err)
	}
	name, ip := pods.Items[0].Name, pods.Items[0].Status.PodIP
	mark(t, typed, name, "true")
	awaitReady(t, typed, 2)
	mark(t, typed, name, "false")
	awaitReady(t, typed, 3)
	pod, err := typed.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || pod.Status.PodIP != ip {
		t.Errorf("the Pod's address is %q, was %q (%v)", pod.Status.PodIP, ip, err)
	}
}

func mark(t *testing.T, typed kubernetes.Interface, pod, unready string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, controlplane.UnreadyAnnotation, unready)
	if _, err := typed.CoreV1().Pods("default").Patch(t.Context(), pod, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func awaitReady(t *testing.T, typed kubernetes.Interface, want int) {
	t.Helper()
	await(t, func(ctx context.Context) error {
		endpoints, err := readyEndpoints(ctx, typed, "web")
		if err == nil && len(endpoints) != want {
			err = fmt.Errorf("%d endpoints are ready, want %d", len(endpoints), want)
		}
		return err
	})
}

func account(t *testing.T, c *controlplane.Cluster) {
	admin := client(t, c)
	began := time.Now()
	for _, err := range []error{
		create(admin.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})),
		create(admin.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "robot"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}}}, metav1.CreateOptions{})),
		create(admin.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "robot"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "robot"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "robot", Namespace: "default"}}}, metav1.CreateOptions{})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clusters.ServiceAccountKubeconfig(t.Context(), c, "default", "robot", path); err != nil {
		t.Fatal(err)
	}
	config, err := clusters.LoadKubeconfig(path)
	if err != nil {
		t.Fatal(err)
	}
	robot := kubernetes.NewForConfigOrDie(config)
	await(t, func(ctx context.Context) error { // the authorizer follows the binding by a watch
		return create(robot.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made-by-robot"}}, metav1.CreateOptions{}))
	})
	if _, err := robot.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing Secrets gives %v, want Forbidden", err)
	}
	writes, err := c.Writes(began)
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for _, w := range writes {
		if w.User == "system:serviceaccount:default:robot" && w.Verb == "create" && w.Resource == "configmaps" && w.Name == "made-by-robot" && w.Code == 201 {
			made++
		}
	}
	if made != 1 {
		t.Errorf("the audit log has %d writes by the robot that made a ConfigMap, want 1, in %+v", made, writes)
	}
}

// create keeps the error of a creation.
func create[T any](_ T, err error) error { return err }

func crash(t *testing.T, c *controlplane.Cluster) {
	typed := client(t, c)
	before := c.PID(controlplane.APIServer)
	if err := c.Kill(controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	if c.PID(controlplane.APIServer) != 0 {
		t.Error("the API server still has a process")
	}
	host := strings.TrimPrefix(c.RESTConfig().Host, "https://")
	if conn, err := net.DialTimeout("tcp", host, time.Second); err == nil {
		_ = conn.Close()
		t.Errorf("something listens on %s after the API server was killed", host)
	}
	if err := c.Start(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	if after := c.PID(controlplane.APIServer); after == before || after == 0 {
		t.Errorf("the API server is process %d, was %d", after, before)
	}
	awaitReady(t, typed, 3)
}

func freeze(t *testing.T, c *controlplane.Cluster) {
	typed := client(t, c)
	if err := c.Pause(controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	answers := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := typed.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err == nil
	}
	// A thread that runs on another processor stops a moment after the signal was sent.
	if answers() {
		if answers() {
			t.Error("a paused API server answered")
		}
	}
	if err := c.Resume(controlplane.APIServer); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, typed, 3)
	if err := c.Kill("kubelet"); err == nil || !strings.Contains(err.Error(), `no component "kubelet"`) {
		t.Errorf("killing what is not there gives %v", err)
	}
}
