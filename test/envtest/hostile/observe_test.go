// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/install"
)

// number makes names and addresses that nothing else has.
var number atomic.Int64

const honest = "honest"

// told is everything that a user of a reads of a name and of peer b: events and conditions
// of the Peer b, of the import and of the export.
func told(namespace, name string) func(Gomega, context.Context) []string {
	return func(g Gomega, ctx context.Context) []string {
		var out []string
		for _, in := range slices.Compact([]string{metav1.NamespaceDefault, cmp.Or(namespace, metav1.NamespaceDefault)}) { // those of Peers are in default
			var events eventsv1.EventList
			g.Expect(victim.client.List(ctx, &events, client.InNamespace(in))).To(Succeed())
			for _, e := range events.Items {
				peer := e.Regarding.Kind == "Peer" && e.Regarding.Name == "b"
				if peer || e.Regarding.Namespace == namespace && e.Regarding.Name == name {
					out = append(out, "event "+e.Reason+": "+e.Note)
				}
			}
		}
		key := client.ObjectKey{Namespace: namespace, Name: name}
		var conditions []metav1.Condition
		p, i, e := &exchangev1alpha1.Peer{}, &mcsv1beta1.ServiceImport{}, &mcsv1beta1.ServiceExport{}
		g.Expect(victim.client.Get(ctx, client.ObjectKey{Name: "b"}, p)).To(Succeed())
		conditions = append(conditions, p.Status.Conditions...)
		if victim.client.Get(ctx, key, i) == nil {
			conditions = append(conditions, i.Status.Conditions...)
		}
		if victim.client.Get(ctx, key, e) == nil {
			conditions = append(conditions, e.Status.Conditions...)
		}
		for _, c := range conditions {
			out = append(out, fmt.Sprintf("condition %s=%s/%s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		return out
	}
}

// backends are the addresses that m has for a Service of the clusterset, each
// with the cluster that it is in, sorted.
func (m *member) backends(namespace, name string) func(Gomega, context.Context) []string {
	return func(g Gomega, ctx context.Context) []string {
		var list discoveryv1.EndpointSliceList
		g.Expect(m.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{
			model.LabelServiceName: name, discoveryv1.LabelManagedBy: model.ManagedBy,
		})).To(Succeed())
		out := []string{}
		for i := range list.Items {
			for _, e := range list.Items[i].Endpoints {
				for _, a := range e.Addresses {
					out = append(out, list.Items[i].Labels[model.LabelSourceCluster]+"/"+a)
				}
			}
		}
		slices.Sort(out)
		return out
	}
}

// traces are the objects in a that hold something of an attack. What Comity
// says of an attack, in events and status, quotes it and is none.
func traces(ctx context.Context, g Gomega) []string {
	var out []string
	for _, list := range []client.ObjectList{
		&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, &mcsv1beta1.ServiceImportList{}, &corev1.NamespaceList{}, &corev1.SecretList{},
		&exchangev1alpha1.ExportRecordList{}, &exchangev1alpha1.NamespaceRecordList{}, &exchangev1alpha1.MemberRecordList{},
		&exchangev1alpha1.ImportRecordList{},
	} {
		g.Expect(victim.client.List(ctx, list)).To(Succeed())
		data, err := json.Marshal(list)
		g.Expect(err).NotTo(HaveOccurred())
		var parsed struct{ Items []map[string]any }
		g.Expect(json.Unmarshal(data, &parsed)).To(Succeed())
		for _, item := range parsed.Items {
			delete(item, "status")
			if spec, ok := item["spec"].(map[string]any); ok {
				delete(spec, "message") // of an ImportRecord, by which b learns what it did wrong
			}
			text, err := json.Marshal(item)
			g.Expect(err).NotTo(HaveOccurred())
			if strings.Contains(string(text), evil) {
				out = append(out, fmt.Sprintf("%T: %s", list, text))
			}
		}
	}
	return out
}

// made are the objects in a namespace of a that Comity made for a name.
func made(namespace, name string) func(Gomega, context.Context) []string {
	return func(g Gomega, ctx context.Context) []string {
		out := []string{}
		for _, list := range []client.ObjectList{&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, &mcsv1beta1.ServiceImportList{}} {
			g.Expect(victim.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{model.LabelServiceName: name})).To(Succeed())
			objects, err := meta.ExtractList(list)
			g.Expect(err).NotTo(HaveOccurred())
			for _, o := range objects {
				out = append(out, fmt.Sprintf("%T %s", o, o.(client.Object).GetName()))
			}
		}
		return out
	}
}

const agentUser = "system:serviceaccount:" + install.Namespace + ":"

// writes are those of a's agent at home since then, without what goes on all
// the time: leader election, the heartbeat, and a token that is renewed.
func writes(since time.Time) []controlplane.Write {
	GinkgoHelper()
	all, err := victim.Writes(since)
	Expect(err).NotTo(HaveOccurred())
	return slices.DeleteFunc(all, func(w controlplane.Write) bool {
		return w.User != agentUser+install.Account || strings.HasPrefix(w.Resource, "coordination.k8s.io/leases")
	})
}

// writtenElsewhere are a's writes in the other clusters, where it has an account.
func writtenElsewhere(since time.Time) []string {
	GinkgoHelper()
	var out []string
	for _, m := range []*member{attacker, neighbor} {
		all, err := m.Writes(since)
		Expect(err).NotTo(HaveOccurred())
		for _, w := range all {
			// It may renew its own token, which changes nothing.
			if w.User == agentUser+model.PeerName("a") && w.Resource != "serviceaccounts/token" {
				out = append(out, fmt.Sprintf("in %s: %+v", m.ID(), w))
			}
		}
	}
	return out
}

// strayWrites are writes that Comity has no business with: beyond objects of
// the given namespaces and of the honest exports, and its own exchange and events.
func strayWrites(since time.Time, namespaces ...string) []string {
	GinkgoHelper()
	var out []string
	for _, w := range writes(since) {
		inExchange := w.Namespace == model.ExchangeNamespace("a") || strings.HasPrefix(w.Namespace, "comity-a-to-")
		switch resource, _, _ := strings.Cut(w.Resource, "/status"); resource {
		case "events", "events.k8s.io/events":
			continue
		case "policy.comity.dev/exportpolicies":
			if w.Resource != resource {
				continue // the status counts the exports that a policy matches
			}
		case "services", "discovery.k8s.io/endpointslices", "multicluster.x-k8s.io/serviceimports", "multicluster.x-k8s.io/serviceexports":
			if slices.Contains(namespaces, w.Namespace) || w.Namespace == honest || inExchange {
				continue
			}
		case "exchange.comity.dev/peers":
			if w.Resource != resource {
				continue // the status says what is refused of b
			}
		default:
			if strings.HasPrefix(resource, "exchange.comity.dev/") && inExchange {
				continue
			}
		}
		out = append(out, fmt.Sprintf("%s %s %s/%s (%d)", w.Verb, w.Resource, w.Namespace, w.Name, w.Code))
	}
	return out
}

func service(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

func serviceExport(namespace, name string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// endpoints is a slice as the EndpointSlice controller writes them.
func endpoints(namespace, service, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: service + "-x",
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
}

// keepHonestExports makes one export in c and one in b, which must work
// whatever happens beside them.
func keepHonestExports(ctx context.Context) {
	GinkgoHelper()
	for _, m := range []*member{victim, neighbor} {
		m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: honest}})
	}
	neighbor.create(ctx, service(honest, "from-c"), endpoints(honest, "from-c", neighbor.address(1)))
	Eventually(func() error { return neighbor.client.Create(ctx, serviceExport(honest, "from-c")) }).Should(Succeed())
	put(ctx, record(client.ObjectKey{Namespace: honest, Name: "from-b"}))
	everythingElseWorks(ctx, true)
}

// everythingElseWorks changes an endpoint in c and, if b can still be read, one
// in b, and expects that a follows.
func everythingElseWorks(ctx context.Context, readable bool) {
	GinkgoHelper()
	address := neighbor.address(int(number.Add(1)))
	Expect(neighbor.client.Update(ctx, endpoints(honest, "from-c", address))).To(Succeed())
	Eventually(victim.backends(honest, "from-c")).WithContext(ctx).Should(Equal([]string{"c/" + address}), "the honest export of c")
	if !readable {
		return
	}
	address = attacker.address(int(number.Add(1)))
	put(ctx, slice(client.ObjectKey{Namespace: honest, Name: "from-b"}, "from-b-x", []string{address}))
	Eventually(victim.backends(honest, "from-b")).WithContext(ctx).Should(Equal([]string{"b/" + address}), "the honest export of b")
}
