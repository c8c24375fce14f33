// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// hostAddress is one of this machine's own, since no endpoint may be on loopback.
var hostAddress = ownAddress()

func ownAddress() string {
	all, _ := net.InterfaceAddrs()
	for _, one := range all {
		prefix, err := netip.ParsePrefix(one.String())
		if err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
			return prefix.Addr().String()
		}
	}
	return "" // the specs that need one say so
}

// listener is an endpoint that answers while it is open.
type listener struct {
	port   int32
	open   func()
	end    func()
	probes atomic.Int32
}

func (l *listener) close() { l.end() }

// listen opens an endpoint on a port that it keeps.
func listen() *listener {
	GinkgoHelper()
	Expect(hostAddress).NotTo(BeEmpty(), "this machine has no IPv4 address but loopback, so no endpoint of it can be probed")
	l, port := &listener{}, 0
	l.open = func() {
		GinkgoHelper()
		opened, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", hostAddress, port))
		Expect(err).NotTo(HaveOccurred())
		port = opened.Addr().(*net.TCPAddr).Port
		l.port, l.end = int32(port), func() { _ = opened.Close() }
		go func() {
			for {
				connection, err := opened.Accept()
				if err != nil {
					return
				}
				l.probes.Add(1)
				_ = connection.Close()
			}
		}()
	}
	l.open()
	DeferCleanup(func() { l.end() })
	return l
}

// setUp makes namespaces in a and b, once both are well. What specs export there is
// withdrawn when they end.
func setUp(ctx context.Context, namespaces ...string) {
	GinkgoHelper()
	healthy(ctx)
	for _, ns := range namespaces {
		for _, m := range both() {
			m.Create(ctx, clusterset.Namespace(ns))
			DeferCleanup(func(ctx SpecContext) {
				Expect(m.Client.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(ns))).To(Succeed())
			}, NodeTimeout(time.Minute))
		}
	}
}

// afterFailure brings back what the specs after one that failed need.
func afterFailure(mend func(context.Context)) {
	DeferCleanup(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			mend(ctx)
		}
	}, NodeTimeout(3*time.Minute))
}

// keepIfLost has m leave the endpoints of a lost cluster as they are, since nothing answers at those of most specs.
func keepIfLost(ctx context.Context, m *clusterset.Member, ns string) {
	GinkgoHelper()
	clusterset.Change(ctx, m, clusterset.Namespace(ns), func(n *corev1.Namespace) {
		n.Annotations = map[string]string{model.AnnotationOnLost: string(model.OnLostKeep)}
	})
}

// kept expects that what m has imported in a namespace stays as it is.
func kept(ctx context.Context, m *clusterset.Member, ns string, whole []string, while string) {
	GinkgoHelper()
	Consistently(ctx, func() []string { return m.AllBackends(ctx, ns) }).WithTimeout(short).Should(Equal(whole), while)
}

// addresses are those of the derived Services of a namespace of m, which Comity must not
// change: by name, with the UID.
func addresses(ctx context.Context, m *clusterset.Member, ns string) map[string]string {
	GinkgoHelper()
	var list corev1.ServiceList
	Expect(m.Client.List(ctx, &list, client.InNamespace(ns), client.HasLabels{model.LabelServiceImported})).To(Succeed())
	out := map[string]string{}
	for _, s := range list.Items {
		out[s.Name] = s.Spec.ClusterIP + " of " + string(s.UID)
	}
	return out
}

// missing are the imports of a namespace of m of which an export is missing.
func missing(m *clusterset.Member, ns string) func(Gomega, context.Context) []string {
	return func(g Gomega, ctx context.Context) []string {
		var out []string
		for _, text := range held(m, ns)(g, ctx) {
			if name, _, is := strings.Cut(text, " "+condition.TypeSourceMissing+": "); is {
				out = append(out, name)
			}
		}
		return out
	}
}

// held are the imports of a namespace of m that something holds, with the conditions that
// say so.
func held(m *clusterset.Member, ns string) func(Gomega, context.Context) []string {
	return func(g Gomega, ctx context.Context) []string {
		var list mcsv1beta1.ServiceImportList
		g.Expect(m.Client.List(ctx, &list, client.InNamespace(ns))).To(Succeed())
		out := []string{}
		for _, i := range list.Items {
			for _, kind := range []string{condition.TypeSourceMissing, condition.TypeFrozen, condition.TypeTakeoverHeld} {
				if c := meta.FindStatusCondition(i.Status.Conditions, kind); c != nil {
					out = append(out, i.Name+" "+kind+": "+c.Message)
				}
			}
		}
		return out
	}
}

// empty deletes all Services, slices and imports of a namespace of m.
func empty(ctx context.Context, m *clusterset.Member, ns string) {
	GinkgoHelper()
	for _, kind := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &mcsv1beta1.ServiceImport{}} {
		Expect(m.Client.DeleteAllOf(ctx, kind, client.InNamespace(ns))).To(Succeed())
	}
}

// awaitEvent waits for an event of a about the Peer b.
func awaitEvent(ctx context.Context, reason string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		var events eventsv1.EventList
		g.Expect(a.Client.List(ctx, &events)).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(HaveField("Regarding.Kind", "Peer"), HaveField("Regarding.Name", "b"), HaveField("Reason", reason))))
	}).Should(Succeed())
}

// specs are the writes other than of status.
func specs(writes []controlplane.Write) []controlplane.Write {
	return slices.DeleteFunc(slices.Clone(writes), func(w controlplane.Write) bool {
		return w.Resource == "multicluster.x-k8s.io/serviceexports/status" || w.Resource == "multicluster.x-k8s.io/serviceimports/status"
	})
}

// exportOne exports a service of m with these endpoints. An agent that lost its Lease, as it
// may while etcd is away, and started again refuses exports until it has loaded the policies.
func exportOne(ctx context.Context, m *clusterset.Member, ns, name string, port int32, addresses ...string) {
	GinkgoHelper()
	m.Create(ctx, clusterset.Service(ns, name), clusterset.Endpoints(ns, name, name+"-x", port, addresses...))
	Eventually(ctx, func() error {
		return client.IgnoreAlreadyExists(m.Client.Create(ctx, clusterset.Export(ns, name)))
	}).Should(Succeed(), "export %s/%s in cluster %s", ns, name, m.ID())
}

// awaitLaterSecond waits until a and b have imported an export of m, and until one that is
// made now is younger, so that the first decides in both: creation times have seconds.
func awaitLaterSecond(ctx context.Context, m *clusterset.Member, ns, name string) {
	GinkgoHelper()
	made := clusterset.Get(ctx, m, clusterset.Export(ns, name)).CreationTimestamp
	for _, importer := range both() {
		Eventually(ctx, importer.Backends(ns, name)).ShouldNot(BeEmpty())
	}
	Eventually(ctx, time.Now).Should(BeTemporally(">", made.Add(1100*time.Millisecond)))
}

// change replaces the endpoints of what exportOne made.
func change(ctx context.Context, m *clusterset.Member, ns, name string, addresses ...string) {
	GinkgoHelper()
	clusterset.Change(ctx, m, clusterset.Endpoints(ns, name, name+"-x", 0), func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = clusterset.Endpoints(ns, name, "", 0, addresses...).Endpoints
	})
}
