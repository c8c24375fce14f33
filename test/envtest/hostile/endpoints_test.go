// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// among is a good endpoint, then the bad ones, then another good one.
func among(bad ...string) func(types.NamespacedName) []forged {
	return func(key types.NamespacedName) []forged {
		all := append([]string{attacker.address(200)}, bad...)
		return []forged{record(key), slice(key, "web-x", append(all, attacker.address(201)))}
	}
}

func twoBackends() []string {
	return []string{"b/" + attacker.address(200), "b/" + attacker.address(201)}
}

// Addresses of a itself are known only once it runs.
func ownPod() string     { return victim.address(7) }
func ownService() string { return victim.Network().ServiceCIDRs[0].Addr().Next().Next().String() }

var _ = DescribeTable("An address is left out, and named, and the good ones beside it are kept:",
	func(ctx SpecContext, address string, named ...string) {
		switch address {
		case "pod":
			address = ownPod()
		case "service":
			address = ownService()
		}
		strike(ctx, attack{forged: among(address), stands: twoBackends, named: append(named, address)})
	},
	Entry("loopback", "127.0.0.1", model.ReasonInvalidEndpoints, "Loopback"),
	Entry("link-local", "169.254.1.1", model.ReasonInvalidEndpoints, "LinkLocal"),
	Entry("metadata service", "169.254.169.254", model.ReasonInvalidEndpoints, "LinkLocal"),
	Entry("multicast", "224.0.0.1", model.ReasonInvalidEndpoints, "Multicast"),
	Entry("broadcast", "255.255.255.255", model.ReasonInvalidEndpoints, "Broadcast"),
	Entry("unspecified", "0.0.0.0", model.ReasonInvalidEndpoints, "Unspecified"),
	Entry("IPv4 as IPv6", "::ffff:10.102.0.9", model.ReasonInvalidEndpoints, "WrongFamily"),
	Entry("with a zone", "fe80::1%eth0", model.ReasonInvalidEndpoints, "Malformed"),
	Entry("with leading zeros", "010.102.0.9", model.ReasonInvalidEndpoints, "Malformed"),
	Entry("host name", "evil.example.com", model.ReasonInvalidEndpoints, "Malformed"),
	Entry("markup", "<script>evil</script>", model.ReasonInvalidEndpoints, "Malformed"),
	Entry("one of a's pods", "pod", model.ReasonAddressOverlap, "pod CIDR 10.101.0.0/16"),
	Entry("one of a's Services", "service", model.ReasonAddressOverlap, "service CIDR 10.201.0.0/16"),
	Entry("not accepted", "192.0.2.1", model.ReasonAddressNotAccepted, model.AnnotationAcceptedCIDRs, join.PeerName("b")),
)

// FAULT 15: good and bad addresses of twelve kinds in one slice.
var _ = Describe("FAULT 15", func() {
	It("keeps the good addresses and names every kind of the bad ones", func(ctx SpecContext) {
		bad := []string{
			"127.0.0.1", "169.254.1.1", "169.254.169.254", "224.0.0.1", "255.255.255.255", "0.0.0.0", "::ffff:10.102.0.9", "fe80::1%eth0",
			"010.102.0.9", "evil.example.com", ownPod(), ownService(), "192.0.2.1", "",
		}
		for _, named := range [][]string{
			{model.ReasonInvalidEndpoints, "Loopback", "LinkLocal", "Multicast", "Broadcast", "Unspecified", "WrongFamily", "Malformed"},
			{model.ReasonAddressOverlap, ownPod()}, {model.ReasonAddressNotAccepted, "192.0.2.1"},
		} {
			strike(ctx, attack{forged: among(bad...), stands: twoBackends, named: named})
		}
	})
})

var _ = DescribeTable("A slice is left out, and named,",
	func(ctx SpecContext, bad func(key types.NamespacedName) forged, named ...string) {
		strike(ctx, attack{
			forged: func(key types.NamespacedName) []forged {
				return []forged{record(key), slice(key, "web-x", []string{attacker.address(200)}), bad(key)}
			},
			stands: oneBackend, named: named,
		})
	},
	Entry("of host names", func(key types.NamespacedName) forged {
		return slice(key, "evil-x", []string{"evil.example.com"}, set("FQDN", "addressType"))
	}, model.ReasonInvalidEndpoints, "addressType", "FQDN"),
	Entry("with 1,001 endpoints", func(key types.NamespacedName) forged {
		return slice(key, "evil-x", strings.Split(strings.Repeat(attacker.address(9)+" ", 1001), " ")[:1001])
	}, model.ReasonInvalidEndpoints, "1001 endpoints"),
	Entry("with an endpoint of 101 addresses", func(key types.NamespacedName) forged {
		return slice(key, "web-y", nil, set([]any{map[string]any{"addresses": many(101, func(i int) any { return attacker.address(i + 300) })}}, "endpoints"))
	}, model.ReasonInvalidEndpoints, "101 addresses"),
)

var _ = DescribeTable("A part of a slice is left out, and named, and its endpoint is kept:",
	func(ctx SpecContext, change change, named ...string) {
		strike(ctx, attack{forged: served(nil, change), stands: oneBackend, named: append(named, model.ReasonInvalidEndpoints)})
	},
	Entry("port 0", set([]any{port("http", 8080, "TCP"), port("evil", 0, "TCP")}, "ports"), "ports[1]"),
	Entry("port 65536", set([]any{port("http", 8080, "TCP"), port("evil", 65536, "TCP")}, "ports"), "ports[1]"),
	Entry("a port twice", set([]any{port("http", 8080, "TCP"), port("http", 9090, "TCP")}, "ports"), "ports[1]"),
	Entry("a label that is none", set("evil value\x00", "metadata", "labels", "tier"), "metadata.labels"),
	Entry("201 labels", func(body map[string]any) {
		for i := range 201 {
			set("evil", "metadata", "labels", fmt.Sprintf("evil-%d", i))(body)
		}
	}, "metadata.labels", "labels"),
	Entry("a hostname with dots", func(body map[string]any) {
		set([]any{map[string]any{"addresses": []any{attacker.address(200)}, "hostname": "web.kube-system.evil"}}, "endpoints")(body)
	}, "endpoints[0].hostname"),
	Entry("a zone that is none", func(body map[string]any) {
		set([]any{map[string]any{"addresses": []any{attacker.address(200)}, "zone": "evil\n"}}, "endpoints")(body)
	}, "endpoints[0].zone"),
)

// A slice that belongs to no export is nobody's; there is no import to tell of it.
var _ = DescribeTable("A slice that belongs to nothing has no effect,",
	func(ctx SpecContext, changes ...change) {
		strike(ctx, attack{
			forged: func(key types.NamespacedName) []forged {
				return []forged{record(key), slice(key, "web-x", []string{attacker.address(200)}), slice(key, "evil-x", []string{attacker.address(9)}, changes...)}
			},
			stands: oneBackend,
		})
	},
	Entry("because its namespace is a path", set("../kube-system", "metadata", "labels", model.LabelExportNamespace)),
	Entry("because its export is not published", set("evil", "metadata", "labels", model.LabelExportName)),
	Entry("because it names no source", set(nil, "metadata", "annotations", model.AnnotationSourceSlice)),
	Entry("because its source is a path", set("../../evil", "metadata", "annotations", model.AnnotationSourceSlice)),
	Entry("because Comity did not make it", set("evil", "metadata", "labels", "endpointslice.kubernetes.io/managed-by")),
)

// A Service that a has itself, not exported, stays what it is.
var _ = Describe("A peer that exports the name of a local Service", func() {
	It("changes neither the Service nor its slices", func(ctx SpecContext) {
		local, mine := service("", "web"), endpoints("", "web", victim.address(3))
		strike(ctx, attack{
			forged: served(nil, set("web", "metadata", "labels", "kubernetes.io/service-name")), stands: oneBackend,
			before: func(ctx context.Context, key types.NamespacedName) {
				local.Namespace, mine.Namespace = key.Namespace, key.Namespace
				victim.create(ctx, local, mine)
			},
		})
		for _, before := range []client.Object{local, mine} {
			now := before.DeepCopyObject().(client.Object)
			Expect(victim.client.Get(ctx, client.ObjectKeyFromObject(before), now)).To(Succeed())
			Expect(now.GetResourceVersion()).To(Equal(before.GetResourceVersion()), "%T is as it was", now)
		}
	})
})
