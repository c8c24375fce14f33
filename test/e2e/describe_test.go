// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

var _ = Describe("`kubectl describe` of an export and its import", Ordered, kep("exporting-services", "constraints-and-conflict-resolution"), func() {
	key := types.NamespacedName{Namespace: "described", Name: "api"}

	BeforeAll(func(ctx SpecContext) {
		clusterA.create(ctx, newNamespace(key.Namespace))
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
	})

	It("says what is missing elsewhere, and that it works once it does", func(ctx SpecContext) {
		clusterA.expectDescribed(ctx, "serviceexport", key,
			reads("Valid", "True", "Valid", Not(BeEmpty())),
			reads("Admitted", "True", "Admitted", Not(BeEmpty())),
			reads("Ready", "True", "Exported", Not(BeEmpty())),
			reads("Conflict", "False", "NoConflicts", Not(BeEmpty())),
			reads("Available", "False", "NamespaceMissing", And(ContainSubstring("imported by 0 of 1 clusters"), ContainSubstring("in b since"))),
		)
		clusterB.create(ctx, newNamespace(key.Namespace))
		clusterA.expectDescribed(ctx, "serviceexport", key, reads("Available", "True", "Imported", ContainSubstring("imported by the one cluster in scope: b")))
		clusterB.expectDescribed(ctx, "serviceimport", key,
			reads("Ready", "True", "Ready", Not(BeEmpty())),
			reads("Available", "True", "Connected", ContainSubstring("a")),
		)
		Eventually(ctx, func() string { // events are sent after the status
			return shell.quietly(ctx, "kubectl --context a -n described describe serviceexport api")
		}).Should(And(MatchRegexp(`(?m)^Events:$`), MatchRegexp(`(?m)^ +Warning +NamespaceMissing .*in b since`), MatchRegexp(`(?m)^ +Normal +Imported `)))
	})

	It("names both sides of a conflict, in both clusters", func(ctx SpecContext) {
		other := newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP)
		other.Spec.Ports[0].Port = 9090
		clusterB.create(ctx, other, newExport(key.Namespace, key.Name))
		for _, m := range bothMembers() {
			m.expectDescribed(ctx, "serviceexport", key, reads("Conflict", "True", "PortConflict", And(ContainSubstring("80/TCP"), ContainSubstring("9090/TCP in b"))))
		}
	})
})

// described is a condition as `kubectl describe` prints it.
type described struct{ Type, Status, Reason, Message string }

// reads matches one condition.
func reads(kind, status, reason string, message gomegatypes.GomegaMatcher) gomegatypes.GomegaMatcher {
	return And(HaveField("Type", kind), HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message))
}

// expectDescribed waits until `kubectl describe` of an object prints all of these conditions.
func (m *member) expectDescribed(ctx context.Context, kind string, key types.NamespacedName, wanted ...gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	var contain []gomegatypes.GomegaMatcher
	for _, w := range wanted {
		contain = append(contain, ContainElement(w))
	}
	var out string
	Eventually(ctx, func() []described {
		out = shell.quietly(ctx, "kubectl --context %s -n %s describe %s %s", m.ID(), key.Namespace, kind, key.Name)
		return conditionsIn(out)
	}).Should(And(contain...), "kubectl --context %s describe %s of %s", m.ID(), kind, key)
	step("kubectl --context %s -n %s describe %s %s prints\n%s", m.ID(), key.Namespace, kind, key.Name, out)
}

// conditionsIn reads the conditions out of what `kubectl describe` printed. Their
// fields are in alphabetical order, so that the type is the last of each.
func conditionsIn(out string) []described {
	_, text, _ := strings.Cut(out, "Conditions:\n")
	var found []described
	var now described
	for _, line := range strings.Split(text, "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "Message":
			now.Message = value
		case "Reason":
			now.Reason = value
		case "Status":
			now.Status = value
		case "Type":
			now.Type = value
			found, now = append(found, now), described{}
		case "Events":
			return found
		}
	}
	return found
}
