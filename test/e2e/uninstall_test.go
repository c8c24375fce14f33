// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/test/docs/guide"
	"github.com/comity-mcs/comity/test/install"
)

const (
	// audited bounds how long an export that no webhook saw goes unnoticed.
	audited = time.Minute
	// removeTimeout bounds the last section of the guide and what is checked after it.
	removeTimeout = 8 * time.Minute
)

var _ = Describe("helm uninstall alone, in b", Serial, beyond(), func() {
	key := types.NamespacedName{Namespace: "uninstalled", Name: "steady"}
	external := types.NamespacedName{Namespace: key.Namespace, Name: "external"}

	It("keeps traffic; and after it was installed again, what no webhook saw is found", func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
		}
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		pods := clusterA.awaitPods(ctx, key.Namespace, key.Name, 1)
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)
		before := clusterB.settledSlicesFrom(ctx, key, clusterA, 1)

		stop := keepAsking(ctx, clusterB, hostOf(key))
		DeferCleanup(func(ctx SpecContext) {
			if CurrentSpecReport().Failed() { // the specs that follow find it installed
				shell.follow(ctx, guide.Comity)
				clusterB.awaitComity(ctx)
			}
		})
		shell.run(ctx, "helm uninstall comity --kube-context b --namespace comity-system --wait --timeout 150s")
		Expect(clusterB.client.Get(ctx, key, &mcsv1beta1.ServiceImport{})).To(Succeed())
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, pods...)
		clusterB.create(ctx, newExternal(external), newExport(external.Namespace, external.Name)) // nobody refuses it now

		shell.follow(ctx, guide.Comity)
		clusterB.awaitComity(ctx)
		back := time.Now()
		Eventually(ctx, clusterB.admitted).WithArguments(ctx, external).WithTimeout(audited).Should(Equal(metav1.ConditionFalse))
		step("in b: ServiceExport %s is found %.0fs after Comity is back", external, time.Since(back).Seconds())
		Expect(clusterB.slicesFrom(ctx, key, "a")).To(Equal(before), "slices from a stay as they are; in a they are now %v", clusterA.listSlices(ctx, key, nil))
		Expect(clusterA.patch(ctx, newServer(key.Namespace, key.Name, 1), replicas(2))).To(Succeed())
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, key.Namespace, key.Name, 2)...)
		requests, failed := stop()
		step("in b: %d requests meanwhile, failed: %v", requests, failed)
		Expect(failed).To(BeEmpty())
	})
})

// newExternal is a Service that no-external-name does not let out.
func newExternal(key types.NamespacedName) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "payments.example.com"},
	}
}

// admitted is the condition Admitted of a ServiceExport.
func (m *member) admitted(ctx context.Context, key types.NamespacedName) (metav1.ConditionStatus, error) {
	export, err := m.exportOf(ctx, key)
	if err != nil {
		return "", err
	}
	if found := meta.FindStatusCondition(export.Status.Conditions, condition.TypeAdmitted); found != nil {
		return found.Status, nil
	}
	return "", nil
}

// before is what was in each cluster before Comity came: inventory by cluster id.
var before sync.Map

// dnsBefore is CoreDNS's configuration at that time, by cluster id.
var dnsBefore = map[string]string{}

// dnsConfiguration is what CoreDNS of m is given and may read.
func (m *member) dnsConfiguration(ctx context.Context) string {
	GinkgoHelper()
	config, err := m.typed.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	role, err := m.typed.RbacV1().ClusterRoles().Get(ctx, "system:coredns", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return fmt.Sprintf("%v\n%v", config.Data, role.Rules)
}

// The guide's last section, once all specs of all processes have passed. A failed suite has shown
// what it had to show, and is taken down as it is.
var _ = SynchronizedAfterSuite(func() {}, func(ctx SpecContext) {
	if _, err := os.Stat(failedMark); !ready || err == nil {
		return
	}
	out := shell.follow(ctx, guide.Uninstall)
	for _, m := range bothMembers() {
		Eventually(ctx, func() ([]string, error) { return m.leftovers(ctx) }).Should(BeEmpty(),
			"what Comity left in cluster %s, beside its CustomResourceDefinitions, after\n%s", m.ID(), out)
		Expect(m.dnsConfiguration(ctx)).To(Equal(dnsBefore[m.ID()]), "CoreDNS of cluster %s is what it was", m.ID())
		step("in %s: nothing is left but the CustomResourceDefinitions", m.ID())
	}
}, NodeTimeout(removeTimeout))

// inventory lists every object of every kind in m, as "resource namespace/name".
func (m *member) inventory(ctx context.Context) ([]string, error) {
	var found []string
	err := m.eachObject(ctx, func(resource string, object *metav1.PartialObjectMetadata) {
		found = append(found, id(resource, object))
	})
	slices.Sort(found)
	return found, err
}

func id(resource string, object *metav1.PartialObjectMetadata) string {
	return resource + " " + strings.TrimPrefix(object.Namespace+"/"+object.Name, "/")
}

// leftovers are the objects that were not there before and should not be there now.
func (m *member) leftovers(ctx context.Context) ([]string, error) {
	there, _ := before.Load(m.ID())
	var found []string
	err := m.eachObject(ctx, func(resource string, object *metav1.PartialObjectMetadata) {
		if name := id(resource, object); !slices.Contains(there.([]string), name) && m.isLeftover(resource, object) {
			found = append(found, name)
		}
	})
	slices.Sort(found)
	return found, err
}

// isLeftover decides about a new object. In a user's namespace it is one if Comity
// made it; elsewhere it is one unless the guide says that it stays.
func (m *member) isLeftover(resource string, object *metav1.PartialObjectMetadata) bool {
	namespace := object.Namespace
	if resource == "namespaces" {
		namespace = object.Name
	}
	switch {
	case resource == "customresourcedefinitions.apiextensions.k8s.io":
		return !strings.HasSuffix(object.Name, ".comity.dev") && !strings.HasSuffix(object.Name, ".multicluster.x-k8s.io")
	case namespace == install.Namespace:
		// The namespace stays, with what Kubernetes itself puts into each, and the agent's Leases.
		return resource != "namespaces" && resource != "leases.coordination.k8s.io" && object.Name != "default" && object.Name != "kube-root-ca.crt"
	case namespace == "" || strings.HasPrefix(namespace, "comity-") || strings.HasPrefix(namespace, "kube-"):
		return true
	case resource == "serviceexports.multicluster.x-k8s.io":
		return false // the user's; its status is of the time when Comity ran
	}
	return slices.ContainsFunc(object.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return strings.Contains(f.Manager, "comity") && f.Manager != "comity-test-clusters"
	})
}

// eachObject passes every object of m, but for those that come and go by themselves.
func (m *member) eachObject(ctx context.Context, pass func(resource string, object *metav1.PartialObjectMetadata)) error {
	lists, err := discovery.ServerPreferredResources(m.typed.Discovery())
	if err != nil {
		return err
	}
	reader, err := metadata.NewForConfig(m.RESTConfig())
	if err != nil {
		return err
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			resource := schema.GroupResource{Group: version.Group, Resource: r.Name}.String()
			if !slices.Contains(r.Verbs, "list") || transient(resource) {
				continue
			}
			objects, err := reader.Resource(version.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list %s in cluster %s: %w", resource, m.ID(), err)
			}
			for i := range objects.Items {
				if object := &objects.Items[i]; object.Namespace != metav1.NamespaceSystem || !ofDeployment(resource) {
					pass(resource, object)
				}
			}
		}
	}
	return nil
}

// transient kinds expire by themselves, are no objects, or only repeat what others say: which kinds are defined, and
// which addresses Services have.
func transient(resource string) bool {
	return slices.Contains([]string{"events", "events.events.k8s.io", "componentstatuses", "endpoints", "apiservices.apiregistration.k8s.io", "ipaddresses.networking.k8s.io"}, resource)
}

// ofDeployment are kinds that a Deployment makes: CoreDNS's change with its configuration.
func ofDeployment(resource string) bool {
	return slices.Contains([]string{"pods", "replicasets.apps", "endpointslices.discovery.k8s.io", "leases.coordination.k8s.io"}, resource)
}
