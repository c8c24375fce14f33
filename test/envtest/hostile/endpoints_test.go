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

// FAULT 15: good and bad addresses of twelve kinds in one slice.
var _ = Describe("FAULT 15", func() {
	It("keeps the good addresses, counts the bad ones and names the first", func(ctx SpecContext) {
		bad := []string{
			"127.0.0.1", "169.254.1.1", "169.254.169.254", "224.0.0.1", "255.255.255.255", "0.0.0.0", "::ffff:10.102.0.9", "fe80::1%eth0",
			"010.102.0.9", "evil.example.com", ownPod(), ownService(), "192.0.2.1", "",
		}
		var key types.NamespacedName
		strike(ctx, attack{
			before: func(_ context.Context, k types.NamespacedName) { key = k },
			forged: among(bad...), stands: twoBackends,
			named: []string{model.ReasonInvalidEndpoints, "11 parts", "127.0.0.1", "endpoints[1].addresses[0]"},
		})
		for _, named := range [][]string{{model.ReasonAddressOverlap, ownPod(), "pods 10.101.0.0/16"}, {model.ReasonAddressNotAccepted, "192.0.2.1", "spec.acceptedCIDRs", "Peer b"}} {
			Eventually(told(key.Namespace, key.Name)).WithContext(ctx).Should(ContainElement(containAll(named)))
		}
	})
})

var _ = It("Slices, and parts of them, are left out, and named, and the endpoints beside them are kept", func(ctx SpecContext) {
	beside := func(title string, bad func(key types.NamespacedName) forged, named ...string) attack {
		return attack{title: title, stands: oneBackend, named: named, forged: func(key types.NamespacedName) []forged {
			return []forged{record(key), slice(key, "web-x", []string{attacker.address(200)}), bad(key)}
		}}
	}
	part := func(title string, change change, named ...string) attack {
		return attack{title: title, forged: served(nil, change), stands: oneBackend, named: append(named, model.ReasonInvalidEndpoints)}
	}
	strike(ctx,
		beside("a slice of host names", func(key types.NamespacedName) forged {
			return slice(key, "evil-x", []string{"evil.example.com"}, set("FQDN", "addressType"))
		}, model.ReasonInvalidEndpoints, "addressType", "FQDN"),
		beside("a slice with 101 endpoints", func(key types.NamespacedName) forged {
			return slice(key, "evil-x", strings.Split(strings.Repeat(attacker.address(9)+" ", 101), " ")[:101])
		}, model.ReasonInvalidEndpoints, "101 endpoints"),
		beside("a slice with 1,001 endpoints", func(key types.NamespacedName) forged {
			return slice(key, "evil-x", strings.Split(strings.Repeat(attacker.address(9)+" ", 1001), " ")[:1001])
		}, model.ReasonLimitExceeded, "evil-x", "endpoints"),
		beside("a slice with an endpoint of 101 addresses", func(key types.NamespacedName) forged {
			return slice(key, "web-y", nil, set([]any{map[string]any{"addresses": many(101, func(i int) any { return attacker.address(i + 300) })}}, "endpoints"))
		}, model.ReasonInvalidEndpoints, "101 addresses"),
		part("port 65536", set([]any{port("http", 8080, "TCP"), port("evil", 65536, "TCP")}, "ports"), "ports[1]"),
		part("a label that is none", set("evil value\x00", "metadata", "labels", "tier"), "metadata.labels"),
		part("201 labels", func(body map[string]any) {
			for i := range 201 {
				set("evil", "metadata", "labels", fmt.Sprintf("evil-%d", i))(body)
			}
		}, "metadata.labels", "labels"),
		part("a hostname with dots", func(body map[string]any) {
			set([]any{
				map[string]any{"addresses": []any{attacker.address(200)}},
				map[string]any{"addresses": []any{attacker.address(201)}, "hostname": "web.kube-system.evil"},
			}, "endpoints")(body)
		}, "endpoints[1], hostname and zone"),
		part("a zone that is none", func(body map[string]any) {
			set([]any{
				map[string]any{"addresses": []any{attacker.address(200)}},
				map[string]any{"addresses": []any{attacker.address(201)}, "zone": "evil\n"},
			}, "endpoints")(body)
		}, "endpoints[1], hostname and zone"),
		attack{title: "slices that belong to no export, of which no import can tell", stands: oneBackend, forged: func(key types.NamespacedName) []forged {
			out := []forged{record(key), slice(key, "web-x", []string{attacker.address(200)})}
			for i, change := range []change{
				set("../kube-system", "metadata", "labels", model.LabelExportNamespace),
				set("evil", "metadata", "labels", model.LabelExportName), // that is not published
				set(nil, "metadata", "annotations", model.AnnotationSourceSlice),
				set("../../evil", "metadata", "annotations", model.AnnotationSourceSlice),
				set("evil", "metadata", "labels", "endpointslice.kubernetes.io/managed-by"), // not made by Comity
			} {
				out = append(out, slice(key, fmt.Sprint("evil-", i), []string{attacker.address(9)}, change))
			}
			return out
		}},
	)
})
