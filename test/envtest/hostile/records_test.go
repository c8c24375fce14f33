// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// Package exchange tests each field, and which is named of those that name no export to report on.
var _ = It("Records and reports are refused as a whole, and counted, and the writer of a record can read which field is why", func(ctx SpecContext) {
	bad := func(title string, forged func(types.NamespacedName) []forged, field string) attack {
		return attack{title: title, forged: forged, invalid: 1, reported: field}
	}
	report := func(title string, change change) attack {
		return attack{title: title, before: exported, forged: reports(change), stands: ownBackend, invalid: 1}
	}
	strike(ctx,
		bad("that aims at kube-system", aimed("kube-system", "evil"), ""),
		bad("whose namespace is a path", aimed("../kube-system", "evil", set("evil", "metadata", "name")), ""),
		bad("whose name is a path", aimed("default", "../evil", set("evil-2", "metadata", "name")), ""),
		bad("whose name has 64 characters", aimed("default", "evil"+strings.Repeat("x", 60)), ""),
		bad("that has another's name", func(key types.NamespacedName) []forged {
			return []forged{record(key, set("other.shop", "metadata", "name"))}
		}, ""),
		bad("without a UID", spoiled(set("", "spec", "exportUID")), ""),
		bad("without a time", spoiled(set(nil, "spec", "exportedAt")), "spec.exportedAt"),
		bad("with port 65536", spoiled(set([]any{port("http", 65536, "TCP")}, "spec", "ports")), "spec.ports[0]"),
		bad("with 1,001 ports", spoiled(set(many(1001, func(i int) any { return port("evil", i+1, "TCP") }), "spec", "ports")), "spec.ports"),
		bad("with a port's name in control characters", spoiled(set([]any{port("\x1b[2J\u202e", 80, "TCP")}, "spec", "ports")), "spec.ports[0]"),
		bad("with annotations of 300 KiB", spoiled(set(annotations(100, 300<<10), "spec", "annotations")), "spec.annotations"),
		bad("with a label key of NUL", spoiled(set(map[string]any{"evil\x00": "a"}, "spec", "labels")), "spec.labels"),
		bad("with targets of ports that are not there", spoiled(
			set(map[string]any{"app": "evil"}, "spec", "selector"),
			set([]any{map[string]any{"port": 22, "protocol": "TCP", "targetPort": 22}}, "spec", "targets")), "spec.targets[0]"),
		bad("that contradicts itself in affinity", spoiled(
			set(map[string]any{"clientIP": map[string]any{"timeoutSeconds": 10}}, "spec", "sessionAffinityConfig")), "spec.sessionAffinityConfig"),
		report("a report with a reason in control characters", set("Evil\x1b", "spec", "reason")),
		report("a report of another export than its name says", set("evil", "spec", "service", "name")),
	)
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
var _ = It("Records are imported without what they try beyond that", func(ctx SpecContext) {
	local, mine := service("", "web"), endpoints("", "web", victim.address(3))
	tries := func(title string, forged func(types.NamespacedName) []forged) attack {
		return attack{title: title, forged: forged, stands: oneBackend}
	}
	strike(ctx,
		tries("with exported labels that speak for Comity and the MCS API, and by which GitOps tools find what to delete", served([]change{set(map[string]any{
			"multicluster.kubernetes.io/service-name": "evil", "multicluster.kubernetes.io/source-cluster": "evil",
			"service.kubernetes.io/service-proxy-name": "evil", "endpointslice.kubernetes.io/managed-by": "evil", "comity.dev/x": "evil",
			"app.kubernetes.io/instance": "evil", "app.kubernetes.io/managed-by": "evil", "argocd.argoproj.io/instance": "evil",
			"kustomize.toolkit.fluxcd.io/name": "evil", "helm.toolkit.fluxcd.io/name": "evil", "helm.sh/chart": "evil", "applyset.kubernetes.io/part-of": "evil",
		}, "spec", "labels")})),
		tries("with exported annotations that do", served([]change{set(map[string]any{
			"argocd.argoproj.io/tracking-id": "evil", "argocd.argoproj.io/hook": "evil", "kustomize.toolkit.fluxcd.io/prune": "evil", "meta.helm.sh/release-name": "evil",
			"kubectl.kubernetes.io/last-applied-configuration": "evil", "config.k8s.io/owning-inventory": "evil",
			"comity.dev/on-lost": "evil", "comity.dev/applied": "evil", "multicluster.kubernetes.io/derived-service": "evil",
		}, "spec", "annotations")})),
		tries("with metadata that would bind it to objects of a", served([]change{
			set([]any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "evil", "uid": "evil"}}, "metadata", "ownerReferences"),
			set([]any{"example.com/evil"}, "metadata", "finalizers"),
			set("2020-01-01T00:00:00Z", "metadata", "deletionTimestamp"),
		})),
		tries("that says it is of another cluster", served([]change{
			set("c", "metadata", "labels", "multicluster.kubernetes.io/source-cluster"), set("evil", "metadata", "labels", "cluster.clusterset.k8s.io"),
		}, set("evil", "metadata", "labels", "multicluster.kubernetes.io/source-cluster"))),
		tries("whose slice says it is of a local Service, or of an application of a, or for another proxy", served(nil,
			set("evil", "metadata", "labels", "kubernetes.io/service-name"), set("evil", "metadata", "labels", "multicluster.kubernetes.io/service-name"),
			set("evil", "metadata", "labels", "app.kubernetes.io/instance"), set("evil", "metadata", "labels", "app.kubernetes.io/managed-by"),
			set("evil", "metadata", "labels", "argocd.argoproj.io/instance"), set("evil", "metadata", "labels", "kustomize.toolkit.fluxcd.io/name"),
			set("evil", "metadata", "labels", "service.kubernetes.io/service-proxy-name"), set("evil", "metadata", "labels", "endpointslice.kubernetes.io/skip-mirror"))),
		tries("whose slice has owners, finalizers and an end", served(nil,
			set([]any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "evil", "uid": "evil"}}, "metadata", "ownerReferences"),
			set([]any{"example.com/evil"}, "metadata", "finalizers"), set("2020-01-01T00:00:00Z", "metadata", "deletionTimestamp"),
			set("evil", "metadata", "annotations", "example.com/evil"))),
		tries("whose endpoints name nodes, pods and hints of a", func(key types.NamespacedName) []forged {
			return []forged{record(key), slice(key, "web-x", nil, set([]any{map[string]any{
				"addresses": []any{attacker.address(200)}, "nodeName": "evil", "hints": map[string]any{"forZones": []any{map[string]any{"name": "evil"}}},
				"targetRef": map[string]any{"kind": "Pod", "namespace": "kube-system", "name": "evil"}, "deprecatedTopology": map[string]any{"evil": "evil"},
			}}, "endpoints"))}
		}),
		attack{
			title:  "with the name of a Service that a has itself, not exported",
			forged: served(nil, set("web", "metadata", "labels", "kubernetes.io/service-name")), stands: oneBackend,
			before: func(ctx context.Context, key types.NamespacedName) {
				local.Namespace, mine.Namespace = key.Namespace, key.Namespace
				victim.create(ctx, local, mine)
			},
		},
	)
	for _, before := range []client.Object{local, mine} {
		now := before.DeepCopyObject().(client.Object)
		Expect(victim.client.Get(ctx, client.ObjectKeyFromObject(before), now)).To(Succeed())
		Expect(now.GetResourceVersion()).To(Equal(before.GetResourceVersion()), "%T is as it was", now)
	}
})
