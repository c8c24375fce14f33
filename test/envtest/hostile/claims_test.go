// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = DescribeTable("A peer that is not what its Peer says is refused, and nothing of it is believed:",
	func(ctx SpecContext, changes []change, named ...string) {
		strike(ctx, attack{
			forged: func(types.NamespacedName) []forged { return []forged{memberRecord(changes...)} },
			named:  named, unreadable: true,
			then: served(nil),
		})
		put(ctx, memberRecord())
		everythingElseWorks(ctx, true)
	},
	Entry("the neighbor's id", []change{set("c", "spec", "clusterID")}, "spec.clusterID", `"c"`),
	Entry("another set", []change{set("evil\x1b[31m", "spec", "clusterSet")}, "spec.clusterSet", `evil\x1b[31m`),
	Entry("another cluster than before", []change{set("33333333-3333-4333-8333-333333333333", "spec", "clusterUID")}, "ClusterIDReused"),
)

// A peer may lie about its own age and its own time; nobody else's clock is compared with it.
// One that claims to be from 1970 must not decide a conflict with an honest one.
var _ = It("FAULT 9: a time that is not now does no harm, and wins no conflict", func(ctx SpecContext) {
	at := func(at string) attack {
		return attack{title: at, stands: oneBackend, forged: func(key types.NamespacedName) []forged {
			time := set(at, "metadata", "creationTimestamp")
			return []forged{
				record(key, time, set(at, "spec", "exportedAt")), slice(key, "web-x", []string{attacker.address(200)}, time),
				heartbeat(parse(at), time, set("evil", "spec", "holderIdentity"), set(1, "spec", "leaseDurationSeconds")),
			}
		}}
	}
	contested := types.NamespacedName{}
	conflict := attack{
		before: func(ctx context.Context, key types.NamespacedName) { contested = key; exported(ctx, key) },
		forged: served([]change{set("1970-01-01T00:00:01Z", "spec", "exportedAt"), set("ClientIP", "spec", "sessionAffinity")}),
		named:  []string{"SessionAffinityConflict"},
		stands: func() []string { return append(ownBackend(), oneBackend()...) },
	}
	strike(ctx, at("1970-01-01T00:00:01Z"), at(time.Now().UTC().Add(time.Hour).Format(time.RFC3339)), at("2099-01-01T00:00:00Z"), conflict)
	i := &mcsv1beta1.ServiceImport{}
	Expect(victim.client.Get(ctx, contested, i)).To(Succeed())
	Expect(string(i.Spec.SessionAffinity)).To(Equal("None"))
})

func parse(at string) time.Time {
	t, err := time.Parse(time.RFC3339, at)
	Expect(err).NotTo(HaveOccurred())
	return t
}

// reports stores what b says of importing a's export web.
func reports(changes ...change) func(key types.NamespacedName) []forged {
	return func(key types.NamespacedName) []forged {
		name := model.RecordName(key.Namespace, key.Name)
		o := forge("exchange.comity.dev/importrecords", scoped, name, &exchangev1alpha1.ImportRecord{
			TypeMeta: kind(exchangeVersion, "ImportRecord"),
			Spec: exchangev1alpha1.ImportRecordSpec{
				Service: exchangev1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name}, ExportUID: exportUID(key), Reason: "NameTaken",
			},
		}, append([]change{set(time.Now().UTC().Format(time.RFC3339), "spec", "since")}, changes...)...)
		return []forged{o}
	}
}

func exportUID(key types.NamespacedName) types.UID {
	e := serviceExport(key.Namespace, key.Name)
	Expect(victim.client.Get(context.Background(), key, e)).To(Succeed())
	return e.UID
}

// exported makes a export the Service that b reports on.
func exported(ctx context.Context, key types.NamespacedName) {
	GinkgoHelper()
	victim.create(ctx, service(key.Namespace, key.Name), endpoints(key.Namespace, key.Name, victim.address(3)))
	Eventually(func() error { return victim.client.Create(ctx, serviceExport(key.Namespace, key.Name)) }).Should(Succeed())
}

func ownBackend() []string { return []string{"a/" + victim.address(3)} }

var _ = It("Reports are shown on one line and bounded, as b's word, on exports that are there", func(ctx SpecContext) {
	var recreated types.NamespacedName
	says := func(title, message string, named ...string) attack {
		return attack{title: title, before: exported, forged: reports(set(message, "spec", "message")), stands: ownBackend, named: append(named, "NameTaken")}
	}
	strike(ctx,
		says("markup, several lines, escapes and overrides of direction", "<script>evil()</script>\r\nReady: True\nAvailable: True\x1b[2J\u202elive\u2066", "<script>evil()</script>"),
		says("5 KiB", "evil "+strings.Repeat("x", 5<<10), "evil xxx"),
		attack{
			title: "of what was never exported", before: exported, stands: ownBackend,
			forged: func(key types.NamespacedName) []forged {
				real := reports()(key)[0]
				other := types.NamespacedName{Namespace: key.Namespace, Name: "evil"}
				o := forge("exchange.comity.dev/importrecords", scoped, model.RecordName(other.Namespace, other.Name), real.body,
					set(model.RecordName(other.Namespace, other.Name), "metadata", "name"), set("evil", "spec", "service", "name"))
				return []forged{o}
			},
		},
		attack{
			title: "of an export that was deleted and created again", before: func(ctx context.Context, k types.NamespacedName) { recreated = k; exported(ctx, k) },
			forged: reports(set("44444444-4444-4444-8444-444444444444", "spec", "exportUID"), set("EvilReason", "spec", "reason")),
			stands: ownBackend,
		},
	)
	// What is stored in a condition is what a terminal shows.
	for _, text := range told("", "")(NewGomega(Fail), ctx) {
		Expect(text).NotTo(MatchRegexp(`[\x00-\x1f\x7f]|\x{202e}|\x{2066}`))
	}
	Expect(told(recreated.Namespace, recreated.Name)(NewGomega(Fail), ctx)).NotTo(ContainElement(ContainSubstring("EvilReason")))
})

var _ = It("Garbage among what b publishes costs nobody else anything", func(ctx SpecContext) {
	among := func(title string, invalid int, garbage ...forged) attack {
		return attack{title: title, invalid: invalid, stands: oneBackend, forged: func(key types.NamespacedName) []forged {
			return append(garbage, record(key), slice(key, "web-x", []string{attacker.address(200)}))
		}}
	}
	labels := map[string]any{}
	for i := range 10_000 {
		labels[fmt.Sprint("evil-", i)] = "x"
	}
	strike(ctx,
		among("a NamespaceRecord with a path for a name", 0, namespaceRecord("../evil")),
		among("NamespaceRecords with labels that are none, and with 10,000", 2,
			namespaceRecord("evil", set(map[string]any{"evil key": "\x00", "kubernetes.io/evil": strings.Repeat("x", 5<<10)}, "spec", "labels")),
			namespaceRecord("evil-2", set(labels, "spec", "labels"))),
		among("a NamespaceRecord of kube-system", 0, namespaceRecord("kube-system", set(map[string]any{"evil": "evil"}, "spec", "labels"))),
		among("a Lease of another name", 0, forge("leases", shared, "evil", map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": map[string]any{"holderIdentity": "evil"},
		})),
		among("a MemberRecord of another name", 0, forge("exchange.comity.dev/memberrecords", shared, "evil", map[string]any{
			"apiVersion": exchangeVersion, "kind": "MemberRecord", "spec": map[string]any{"clusterID": "evil", "clusterSet": clusterset},
		})),
	)
})

// A record whose JSON has other types than the API cannot be decoded, and with
// it none of b's records can. That is b's own loss: what was read stays.
var _ = It("A record that cannot be decoded leaves b unread, and nobody else", func(ctx SpecContext) {
	strike(ctx, attack{
		forged: func(types.NamespacedName) []forged {
			textForNumber := set([]any{map[string]any{"name": "http", "port": "evil"}}, "spec", "ports")
			return []forged{record(types.NamespacedName{Namespace: "default", Name: "evil"}, textForNumber)}
		},
		named:      []string{"ExportRecords"},
		unreadable: true,
	})
	Expect(victim.backends(honest, "from-b")(NewGomega(Fail), ctx)).NotTo(BeEmpty(), "what was read from b stays")
})

// The victim's own audience: a record in the namespace that only a reads is
// as little believed as one that all may read.
var _ = Describe("The exchange namespace for a alone", func() {
	It("is no better believed", func(ctx SpecContext) {
		strike(ctx, attack{
			forged: func(types.NamespacedName) []forged {
				o := record(types.NamespacedName{Namespace: "kube-system", Name: "evil"}, set(scoped, "metadata", "namespace"))
				o.path = strings.Replace(o.path, shared, scoped, 1)
				return []forged{o}
			},
			named: []string{"InvalidRecord", scoped, "kube-system"},
		})
		Expect(victim.client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: model.DerivedName("evil")}, service("", ""))).NotTo(Succeed())
	})
})
