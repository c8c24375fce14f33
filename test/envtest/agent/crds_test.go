// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/config/crd"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/install"
)

// definitions are the names of all definitions that an agent needs, Comity's own
// first, and where the agent names them.
var definitions = map[string]string{
	"exportpolicies.policy.comity.dev":     "exportpolicies.policy.comity.dev/v1alpha1",
	"exportrecords.exchange.comity.dev":    "exportrecords.exchange.comity.dev/v1alpha1",
	"importrecords.exchange.comity.dev":    "importrecords.exchange.comity.dev/v1alpha1",
	"memberrecords.exchange.comity.dev":    "memberrecords.exchange.comity.dev/v1alpha1",
	"namespacerecords.exchange.comity.dev": "namespacerecords.exchange.comity.dev/v1alpha1",
	peersDefinition:                        "peers.exchange.comity.dev/v1alpha1",
	"serviceexports.multicluster.x-k8s.io": "serviceexports.multicluster.x-k8s.io/v1beta1",
	"serviceimports.multicluster.x-k8s.io": "serviceimports.multicluster.x-k8s.io/v1beta1",
}

// define applies a definition again.
func (m *member) define(ctx context.Context, name string) {
	GinkgoHelper()
	manifests, err := clusters.Files(crd.FS)
	Expect(err).NotTo(HaveOccurred())
	for _, manifest := range append(manifests, clusters.MCSDefinitions()...) {
		objects, err := clusters.Decode(manifest)
		Expect(err).NotTo(HaveOccurred())
		if objects[0].GetName() == name {
			Expect(clusters.Apply(ctx, m.RESTConfig(), manifest)).To(Succeed())
			return
		}
	}
	Fail("no definition is called " + name)
}

// readiness is what /readyz of m answers.
func (m *member) readiness() string {
	code, body := get(m.agent.ReadyURL())
	return fmt.Sprint(code, " ", body)
}

// misses expects that the agent of m is not ready, and names all of these definitions.
func (m *member) misses(names ...string) {
	GinkgoHelper()
	for _, name := range names {
		Eventually(m.readiness).Should(And(HavePrefix("503 "), ContainSubstring(definitions[name])))
		Eventually(logged(m.logFile(), `"msg":"not ready"`, definitions[name])).ShouldNot(BeEmpty())
	}
}

// FAULT 36.
var _ = Describe("Definitions that are missing", Ordered, func() {
	const ns = "defined"
	var d, e *member

	BeforeAll(func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		started := startClusters(controlplane.Options{IDs: []string{"d", "e"}, FirstNetwork: 4, Dir: filepath.Join(dir, "clusters"), APIServerOnly: true})
		d, e = started[0], started[1]
		for _, m := range started {
			m.dir = filepath.Join(dir, "agents", m.ID())
			Expect(m.install(ctx)).To(Succeed())
			DeferCleanup(func() { Expect(m.agent.Kill()).To(Succeed()) })
			m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		}
		Expect(install.Join(ctx, nil, []join.Cluster{side(d), side(e)}, join.Options{})).To(Succeed())
		for _, m := range started {
			m.exports(ctx, ns, "from-"+m.ID())
		}
		reaches(ctx, d, e, ns, "from-d")
		reaches(ctx, e, d, ns, "from-e")
	}, NodeTimeout(3*time.Minute))

	// works exports one from each, which the other one imports.
	works := func(ctx context.Context) {
		GinkgoHelper()
		fresh := "fresh-" + newNumber()
		d.exports(ctx, ns, fresh)
		e.exports(ctx, ns, fresh+"-e")
		reaches(ctx, d, e, ns, fresh)
		reaches(ctx, e, d, ns, fresh+"-e")
		reaches(ctx, e, d, ns, "from-e")
	}

	AfterEach(func() {
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Printf("\ncomity in d:\n%s\n", d.agent.LogTail(40))
		}
	})

	It("take neither exports nor imports with them while the agent runs, which goes on when they are back", func(ctx SpecContext) {
		pid := d.agent.PID()
		names := []string{exportsDefinition, "serviceimports.multicluster.x-k8s.io", "exportpolicies.policy.comity.dev"}
		d.undefine(ctx, names...)
		d.misses(names...)
		d.statesNothing(ctx, ns, "from-d")
		Expect(e.backends(ns, "from-d")(Default, ctx)).NotTo(BeEmpty())
		// What it imports is nobody's to take away: the peer exports it still.
		Expect(d.backends(ns, "from-e")(Default, ctx)).NotTo(BeEmpty())
		for _, name := range names {
			d.define(ctx, name)
		}
		Eventually(d.readiness).WithTimeout(ready).Should(HavePrefix("200 "))
		Expect(d.agent.PID()).To(Equal(pid), "it did not end")
		works(ctx)

		By("marking what is gone with the definition as lost, until it is there again")
		d.statesNothing(ctx, ns, "from-d")
		Eventually(d.recordOf(ctx, ns, "from-d")).Should(HaveField("Spec.Lost", true))
		again := export(ns, "from-d")
		d.create(ctx, again)
		Eventually(d.recordOf(ctx, ns, "from-d")).Should(And(HaveField("Spec.ExportUID", again.UID), HaveField("Spec.Lost", false)))
		reaches(ctx, d, e, ns, "from-d")
		d.remove(ctx, again)
		Eventually(d.recordOf(ctx, ns, "from-d")).Should(HaveField("Spec.Withdrawn", true))
		d.create(ctx, export(ns, "from-d"))
		reaches(ctx, d, e, ns, "from-d")
	}, NodeTimeout(3*time.Minute))

	It("are all named, also by an agent that starts without them, until the last is there", func(ctx SpecContext) {
		pid, names := d.agent.PID(), slices.Collect(maps.Keys(definitions))
		d.undefine(ctx, names...)
		d.misses(names...)
		Expect(d.agent.PID()).To(Equal(pid), "it did not end")
		Expect(d.backends(ns, "from-e")(Default, ctx)).NotTo(BeEmpty())
		Expect(d.agent.Stop()).To(Succeed())
		Expect(d.agent.Start()).To(Succeed())
		pid = d.agent.PID()
		alive := strings.Replace(d.agent.ReadyURL(), "/readyz", "/healthz", 1)
		for n, name := range names {
			for _, still := range names[n:] {
				Eventually(d.readiness).Should(And(HavePrefix("503 "), ContainSubstring(definitions[still])))
			}
			for _, back := range names[:n] {
				Eventually(d.readiness).ShouldNot(ContainSubstring(definitions[back]))
			}
			code, _ := get(alive)
			Expect(code).To(Equal(http.StatusOK))
			d.define(ctx, name)
		}
		Eventually(d.readiness).WithTimeout(ready).Should(HavePrefix("200 "))
		Expect(d.agent.PID()).To(Equal(pid), "it did not end")
		Expect(install.Join(ctx, nil, []join.Cluster{side(d), side(e)}, join.Options{})).To(Succeed(), "the Peers are gone with their definition")
		d.exports(ctx, ns, "last")
		reaches(ctx, d, e, ns, "last")
		reaches(ctx, e, d, ns, "from-e")
	}, NodeTimeout(5*time.Minute))

	It("are not all: the namespace of Comity takes nothing with it when it is deleted", func(ctx SpecContext) {
		reaches(ctx, d, e, ns, "last")
		reaches(ctx, d, d, ns, "last")
		reaches(ctx, e, d, ns, "from-e")
		// Nothing finishes the deletion here, so the agent runs on, as it does until its Pod ends.
		d.remove(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: install.Namespace}})
		stopped := logged(d.logFile(), "nothing is written any more", install.Namespace)
		Eventually(stopped).Should(HaveLen(1))
		before, err := d.recordOf(ctx, ns, "last")()
		Expect(err).NotTo(HaveOccurred())
		d.remove(ctx, export(ns, "last"))
		Expect(d.client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(install.Namespace))).To(Succeed())
		Consistently(d.recordOf(ctx, ns, "last"), 1500*time.Millisecond).Should(HaveField("ResourceVersion", before.ResourceVersion))
		Expect(before.Spec.Withdrawn).To(BeFalse())
		Expect(d.backends(ns, "from-e")(Default, ctx)).NotTo(BeEmpty())
		Expect(d.backends(ns, "last")(Default, ctx)).NotTo(BeEmpty(), "its own import stays, too")
		Expect(stopped(Default)).To(HaveLen(1), "said once")
	}, NodeTimeout(3*time.Minute))
})

// peersDefinition is the definition of Peers, without which alone an agent starts.
const peersDefinition = "peers.exchange.comity.dev"

// exportsDefinition is the definition of ServiceExports: whoever deletes it deletes
// them all.
const exportsDefinition = "serviceexports.multicluster.x-k8s.io"

// recordOf reads what m publishes of an export for all members.
func (m *member) recordOf(ctx context.Context, namespace, name string) func() (*exchangev1alpha1.ExportRecord, error) {
	return func() (*exchangev1alpha1.ExportRecord, error) {
		record := &exchangev1alpha1.ExportRecord{}
		key := types.NamespacedName{Namespace: model.ExchangeNamespace(model.ClusterID(m.ID())), Name: model.RecordName(namespace, name)}
		return record, m.client.Get(ctx, key, record)
	}
}

// statesNothing expects that an export stays published though its ServiceExport is gone.
func (m *member) statesNothing(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	record := m.recordOf(ctx, namespace, name)
	Consistently(record, time.Second).Should(And(HaveField("Spec.Withdrawn", false), HaveField("Spec.Slices", HaveLen(1))))
}

// exports makes an exported Service with one endpoint.
func (m *member) exports(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	m.create(ctx, service(namespace, name), endpoints(namespace, name, name+"-x", newAddress()))
	// The webhook of an agent that became ready a moment ago may not be called yet.
	Eventually(func() error { return m.client.Create(ctx, export(namespace, name)) }).Should(Succeed())
}

// reaches expects that an export of one cluster has endpoints in another.
func reaches(ctx context.Context, from, to *member, namespace, name string) {
	GinkgoHelper()
	Eventually(to.backends(namespace, name)).WithContext(ctx).WithTimeout(ready).Should(
		ContainElement(HavePrefix(from.ID()+"/")), "%s of %s in %s", name, from.ID(), to.ID())
}
