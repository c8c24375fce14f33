// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// spoiled is a valid record and slice, of which the record is changed.
func spoiled(changes ...change) func(types.NamespacedName) []forged {
	return func(key types.NamespacedName) []forged {
		return []forged{record(key, changes...), slice(key, "web-x", []string{attacker.address(200)})}
	}
}

// aimed is a record of another Service.
func aimed(namespace, name string, changes ...change) func(types.NamespacedName) []forged {
	return func(types.NamespacedName) []forged {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		return []forged{record(key, changes...)}
	}
}

func port(name string, number int, protocol string) map[string]any {
	return map[string]any{"name": name, "port": number, "protocol": protocol}
}

func many(n int, of func(i int) any) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = of(i)
	}
	return out
}

func annotations(n, bytes int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out["example.com/evil-"+strings.Repeat("x", i%40)+string(rune('a'+i%26))] = strings.Repeat("x", bytes/n)
	}
	return out
}

var _ = DescribeTable("A record is refused as a whole, and named,",
	func(ctx SpecContext, forged func(types.NamespacedName) []forged, named ...string) {
		strike(ctx, attack{forged: forged, named: append([]string{"InvalidRecord"}, named...)})
	},
	Entry("that aims at kube-system", aimed("kube-system", "evil"), "spec.service.namespace", `"kube-system"`),
	Entry("that aims at another namespace of the cluster", aimed("kube-evil", "evil"), "spec.service.namespace", "kube-evil"),
	Entry("whose namespace is a path", aimed("../kube-system", "evil", set("evil", "metadata", "name")), "spec.service.namespace", "RFC 1123"),
	Entry("whose name is a path", aimed("default", "../evil", set("evil", "metadata", "name")), "spec.service.name", "RFC 1123"),
	Entry("whose name has 64 characters", aimed("default", "evil"+strings.Repeat("x", 60)), "spec.service.name"),
	Entry("whose name has 253 characters", aimed("default", "evil"+strings.Repeat("x", 249)), "spec.service.name"),
	Entry("that has another's name", func(key types.NamespacedName) []forged {
		return []forged{record(key, set("other.shop", "metadata", "name"))}
	}, "metadata.name", "other.shop"),
	Entry("without a UID", spoiled(set("", "spec", "exportUID")), "spec.exportUID"),
	Entry("whose UID ends a line and starts another", spoiled(set("a\r\nevil", "spec", "exportUID")), "spec.exportUID", `\r\n`),
	Entry("without a time", spoiled(set(nil, "spec", "exportedAt")), "spec.exportedAt"),
	Entry("of an unknown type", spoiled(set("ExternalName", "spec", "type")), "spec.type", "ExternalName"),
	Entry("with port 0", spoiled(set([]any{port("http", 0, "TCP")}, "spec", "ports")), "spec.ports[0].port"),
	Entry("with port 65536", spoiled(set([]any{port("http", 65536, "TCP")}, "spec", "ports")), "spec.ports[0].port", "65536"),
	Entry("with a port twice", spoiled(set([]any{port("x", 80, "TCP"), port("y", 80, "TCP")}, "spec", "ports")), "spec.ports[1].port", "twice"),
	Entry("with 1,001 ports", spoiled(set(many(1001, func(i int) any { return port("evil", i+1, "TCP") }), "spec", "ports")), "spec.ports", "1001"),
	Entry("with a port's name in control characters", spoiled(set([]any{port("\x1b[2J\u202e", 80, "TCP")}, "spec", "ports")), "spec.ports[0].name", `\x1b[2J\u202e`),
	Entry("with annotations of 300 KiB", spoiled(set(annotations(100, 300<<10), "spec", "annotations")), "spec.annotations", "expected at most"),
	Entry("with labels that are none", spoiled(set(map[string]any{"evil": "a b"}, "spec", "labels")), "spec.labels", `"a b"`),
	Entry("with a label key of NUL", spoiled(set(map[string]any{"evil\x00": "a"}, "spec", "labels")), "spec.labels", `evil\x00`),
	Entry("with a selector that is none", spoiled(set(map[string]any{"app": "!evil"}, "spec", "selector")), "spec.selector"),
	Entry("with targets of ports that are not there", spoiled(
		set(map[string]any{"app": "evil"}, "spec", "selector"),
		set([]any{map[string]any{"port": 22, "protocol": "TCP", "targetPort": 22}}, "spec", "targets")), "spec.targets[0]"),
	Entry("that contradicts itself in affinity", spoiled(
		set(map[string]any{"clientIP": map[string]any{"timeoutSeconds": 10}}, "spec", "sessionAffinityConfig")), "spec.sessionAffinityConfig"),
	Entry("with three families", spoiled(set([]any{"IPv4", "IPv6", "IPv4"}, "spec", "ipFamilies")), "spec.ipFamilies"),
	Entry("with a traffic policy of its own", spoiled(set("evil", "spec", "internalTrafficPolicy")), "spec.internalTrafficPolicy"),
)

var _ = It("A record is refused, and its writer can read which field is why", func(ctx SpecContext) {
	strike(ctx, attack{
		forged: spoiled(set([]any{port("http", 65536, "TCP")}, "spec", "ports")), named: []string{"InvalidRecord", "spec.ports[0].port"},
	})
	Eventually(ctx, func(g Gomega) {
		var said exchangev1alpha1.ImportRecordList
		g.Expect(victim.client.List(ctx, &said, client.InNamespace(model.ScopedExchangeNamespace("a", "b")))).To(Succeed())
		g.Expect(said.Items).To(ContainElement(HaveField("Spec", And(
			HaveField("Imported", false), HaveField("Reason", model.ReasonInvalidRecord), HaveField("Message", ContainSubstring("field spec.ports[0].port is not valid"))))))
	}).Should(Succeed())
})

// served is a valid record and a slice with one good address, with changes to both.
func served(toRecord []change, toSlice ...change) func(types.NamespacedName) []forged {
	return func(key types.NamespacedName) []forged {
		return []forged{record(key, toRecord...), slice(key, "web-x", []string{attacker.address(200)}, toSlice...)}
	}
}

func oneBackend() []string { return []string{"b/" + attacker.address(200)} }

// What follows is no fault of form. It is imported, but has no effect beyond
// the import of its own name.
var _ = DescribeTable("A record is imported without what it tries beyond that,",
	func(ctx SpecContext, forged func(types.NamespacedName) []forged) {
		strike(ctx, attack{forged: forged, stands: oneBackend})
	},
	Entry("with exported labels that speak for Comity and the MCS API", served([]change{set(map[string]any{
		"multicluster.kubernetes.io/service-name": "evil", "multicluster.kubernetes.io/source-cluster": "evil",
		"service.kubernetes.io/service-proxy-name": "evil", "endpointslice.kubernetes.io/managed-by": "evil", "comity.dev/x": "evil",
	}, "spec", "labels")})),
	Entry("with exported annotations that speak for Comity", served([]change{set(map[string]any{
		"comity.dev/on-lost": "evil", "comity.dev/applied": "evil", "multicluster.kubernetes.io/derived-service": "evil",
	}, "spec", "annotations")})),
	Entry("with metadata that would bind it to objects of a", served([]change{
		set([]any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "evil", "uid": "evil"}}, "metadata", "ownerReferences"),
		set([]any{"example.com/evil"}, "metadata", "finalizers"),
		set("2020-01-01T00:00:00Z", "metadata", "deletionTimestamp"),
	})),
	Entry("that says it is of another cluster", served([]change{
		set("c", "metadata", "labels", "multicluster.kubernetes.io/source-cluster"), set("evil", "metadata", "labels", "cluster.clusterset.k8s.io"),
	}, set("evil", "metadata", "labels", "multicluster.kubernetes.io/source-cluster"))),
	Entry("whose slice says it is of a local Service", served(nil,
		set("evil", "metadata", "labels", "kubernetes.io/service-name"), set("evil", "metadata", "labels", "multicluster.kubernetes.io/service-name"))),
	Entry("whose slice is for another proxy", served(nil,
		set("evil", "metadata", "labels", "service.kubernetes.io/service-proxy-name"), set("evil", "metadata", "labels", "endpointslice.kubernetes.io/skip-mirror"))),
	Entry("whose slice has owners, finalizers and an end", served(nil,
		set([]any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "evil", "uid": "evil"}}, "metadata", "ownerReferences"),
		set([]any{"example.com/evil"}, "metadata", "finalizers"), set("2020-01-01T00:00:00Z", "metadata", "deletionTimestamp"),
		set("evil", "metadata", "annotations", "example.com/evil"))),
	Entry("whose endpoints name nodes, pods and hints of a", func(key types.NamespacedName) []forged {
		return []forged{record(key), slice(key, "web-x", nil, set([]any{map[string]any{
			"addresses": []any{attacker.address(200)}, "nodeName": "evil", "hints": map[string]any{"forZones": []any{map[string]any{"name": "evil"}}},
			"targetRef": map[string]any{"kind": "Pod", "namespace": "kube-system", "name": "evil"}, "deprecatedTopology": map[string]any{"evil": "evil"},
		}}, "endpoints"))}
	}),
)
