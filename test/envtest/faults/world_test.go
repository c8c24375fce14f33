// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/install"
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
	port int32
	open func()
	end  func()
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
				_ = connection.Close()
			}
		}()
	}
	l.open()
	DeferCleanup(func() { l.end() })
	return l
}

// withdrawAll deletes what specs made in a namespace, everywhere, and waits
// until what came of it is gone.
func withdrawAll(ctx context.Context, ns string) {
	GinkgoHelper()
	for _, m := range []*clusterset.Member{a, b} {
		Expect(m.Client.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(ns))).To(Succeed())
	}
	for _, m := range []*clusterset.Member{a, b} {
		Eventually(ctx, func(g Gomega) {
			for _, m := range []*clusterset.Member{a, b} {
				confirm(ctx, m)
			}
			var left mcsv1beta1.ServiceImportList
			g.Expect(m.Client.List(ctx, &left, client.InNamespace(ns))).To(Succeed())
			g.Expect(left.Items).To(BeEmpty())
		}).WithTimeout(2*time.Minute).WithPolling(2*time.Second).Should(Succeed(), "what is left in %s of %s", m.ID(), ns)
		empty(ctx, m, ns)
	}
	for _, m := range []*clusterset.Member{a, b} {
		confirm(ctx, m) // so that nothing of it counts against a later spec
	}
	confirmed := time.Now().Add(time.Second)
	Eventually(ctx, time.Now).Should(BeTemporally(">", confirmed), "nor confirms what a later spec does")
}

// empty deletes all Services, slices and imports of a namespace of m.
func empty(ctx context.Context, m *clusterset.Member, ns string) {
	GinkgoHelper()
	for _, kind := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &mcsv1beta1.ServiceImport{}} {
		Expect(m.Client.DeleteAllOf(ctx, kind, client.InNamespace(ns))).To(Succeed())
	}
}

// awaitEvent waits for an event in a about its peer b that has this reason.
func awaitEvent(ctx context.Context, reason string) {
	GinkgoHelper()
	awaitEventOn(ctx, a, "peer-b", reason)
}

// awaitEventOn waits for an event in m about a peer Secret that has this reason and,
// in its note, all parts.
func awaitEventOn(ctx context.Context, m *clusterset.Member, secret, reason string, parts ...string) {
	GinkgoHelper()
	note := make([]OmegaMatcher, len(parts))
	for i, part := range parts {
		note[i] = ContainSubstring(part)
	}
	Eventually(ctx, func(g Gomega) {
		var events eventsv1.EventList
		g.Expect(m.Client.List(ctx, &events, client.InNamespace(install.Namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(
			HaveField("Regarding.Name", secret), HaveField("Reason", reason), HaveField("Note", And(note...)))))
	}).Should(Succeed())
}

// confirm says that what the peers of m withdrew until now, which has fractions
// of a second that the annotation has not, is meant.
func confirm(ctx context.Context, m *clusterset.Member) {
	GinkgoHelper()
	var secrets corev1.SecretList
	Expect(m.Client.List(ctx, &secrets, client.InNamespace(install.Namespace), client.HasLabels{model.LabelClusterID})).To(Succeed())
	for _, s := range secrets.Items {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
		clusterset.Change(ctx, m, secret, func(s *corev1.Secret) {
			if s.Annotations == nil {
				s.Annotations = map[string]string{}
			}
			s.Annotations[model.AnnotationConfirmDeletions] = time.Now().Add(time.Second).UTC().Format(time.RFC3339)
		})
	}
}

// specs are the writes other than of status.
func specs(writes []controlplane.Write) []controlplane.Write {
	return slices.DeleteFunc(slices.Clone(writes), func(w controlplane.Write) bool {
		return w.Resource == "multicluster.x-k8s.io/serviceexports/status" || w.Resource == "multicluster.x-k8s.io/serviceimports/status"
	})
}

// exportOne exports a service of m with these endpoints.
func exportOne(ctx context.Context, m *clusterset.Member, ns, name string, port int32, addresses ...string) {
	GinkgoHelper()
	m.Create(ctx, clusterset.Service(ns, name), clusterset.Endpoints(ns, name, name+"-x", port, addresses...), clusterset.Export(ns, name))
}

// change replaces the endpoints of what exportOne made.
func change(ctx context.Context, m *clusterset.Member, ns, name string, addresses ...string) {
	GinkgoHelper()
	clusterset.Change(ctx, m, clusterset.Endpoints(ns, name, name+"-x", 0), func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = clusterset.Endpoints(ns, name, "", 0, addresses...).Endpoints
	})
}
