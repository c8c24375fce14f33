// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/config/crd"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
)

// definitions are the names of all definitions that an agent needs, Comity's own
// first, and where the agent names them.
var definitions = map[string]string{
	"exportpolicies.policy.comity.dev":     "exportpolicies.policy.comity.dev/v1alpha1",
	"exportrecords.exchange.comity.dev":    "exportrecords.exchange.comity.dev/v1alpha1",
	"importrecords.exchange.comity.dev":    "importrecords.exchange.comity.dev/v1alpha1",
	"memberrecords.exchange.comity.dev":    "memberrecords.exchange.comity.dev/v1alpha1",
	"namespacerecords.exchange.comity.dev": "namespacerecords.exchange.comity.dev/v1alpha1",
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

// Fault 36.
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
		Expect(join.Connect(ctx, side(d), side(e), join.Options{})).To(Succeed())
		for _, m := range started {
			m.exports(ctx, ns, "from-"+m.ID())
		}
		reaches(ctx, d, e, ns, "from-d")
		reaches(ctx, e, d, ns, "from-e")
	}, NodeTimeout(3*time.Minute))

	AfterEach(func() {
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Printf("\ncomity in d:\n%s\n", d.agent.LogTail(40))
		}
	})

	for name, missing := range definitions {
		It("names "+name+" that is deleted while the agent runs, and goes on when it is back", func(ctx SpecContext) {
			pid := d.agent.PID()
			d.undefine(ctx, name)
			Eventually(d.readiness).Should(And(HavePrefix("503 "), ContainSubstring(missing)))
			Expect(logged(d.dir, `"msg":"not ready"`, missing)(Default)).To(HaveLen(1), "said once")
			// What it imports is nobody's to take away: the peer exports it still.
			Expect(d.backends(ns, "from-e")(Default, ctx)).NotTo(BeEmpty())

			d.define(ctx, name)
			Eventually(d.readiness).WithTimeout(ready).Should(HavePrefix("200 "))
			Expect(d.agent.PID()).To(Equal(pid), "it did not end")
			fresh := "fresh-" + newNumber()
			d.exports(ctx, ns, fresh)
			e.exports(ctx, ns, fresh+"-e")
			reaches(ctx, d, e, ns, fresh)
			reaches(ctx, e, d, ns, fresh+"-e")
			reaches(ctx, e, d, ns, "from-e")
			if name != "serviceexports.multicluster.x-k8s.io" { // with that, the exports themselves are gone
				reaches(ctx, d, e, ns, "from-d")
			} else {
				d.create(ctx, export(ns, "from-d"))
			}
		}, NodeTimeout(3*time.Minute))
	}

	It("are all named when the agent starts without them, until the last is there", func(ctx SpecContext) {
		Expect(d.agent.Stop()).To(Succeed())
		var names []string
		for name := range definitions {
			names = append(names, name)
		}
		d.undefine(ctx, names...)
		Expect(d.agent.Start()).To(Succeed())
		pid, alive := d.agent.PID(), strings.Replace(d.agent.ReadyURL(), "/readyz", "/healthz", 1)
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
		d.exports(ctx, ns, "last")
		reaches(ctx, d, e, ns, "last")
	}, NodeTimeout(5*time.Minute))
})

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
