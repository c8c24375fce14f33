// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// Each property that the deciding export decides is one that a takeover may not change.
func TestEachPropertyThatChangesIsFound(t *testing.T) {
	standing := func(change func(*model.Export)) model.Export {
		e := model.Export{
			SourceExport:      model.SourceExport{Cluster: "a"},
			ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, IPFamilies: []corev1.IPFamily{"IPv4"}, Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}},
		}
		change(&e)
		return e
	}
	clientIP := func(seconds int32) func(*model.Export) {
		return func(e *model.Export) {
			e.SessionAffinity = corev1.ServiceAffinityClientIP
			e.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}
	}
	same := func(*model.Export) {}
	for name, c := range map[string]struct {
		before, after func(*model.Export)
		want          []string
	}{
		"nothing":               {same, same, nil},
		"type":                  {same, func(e *model.Export) { e.Type = mcsv1beta1.Headless }, []string{"type: ClusterSetIP to Headless"}},
		"number of a port":      {same, func(e *model.Export) { e.Ports[0].Port = 81 }, []string{`port "http": 80/TCP to 81/TCP`}},
		"protocol of a port":    {same, func(e *model.Export) { e.Ports[0].Protocol = corev1.ProtocolUDP }, []string{`port "http": 80/TCP to 80/UDP`}},
		"application of a port": {same, func(e *model.Export) { e.Ports[0].AppProtocol = ptr.To("h2c") }, []string{`port "http": 80/TCP to 80/TCP with appProtocol "h2c"`}},
		"name of a port":        {same, func(e *model.Export) { e.Ports[0].Name = "x" }, []string{`port "http": 80/TCP to absent`}},
		"a further port is none": {same, func(e *model.Export) {
			e.Ports = append(e.Ports, mcsv1beta1.ServicePort{Name: "x", Protocol: "TCP", Port: 81})
		}, nil},
		"families": {same, func(e *model.Export) { e.IPFamilies = []corev1.IPFamily{"IPv6"} }, []string{"ipFamilies: IPv4 to IPv6"}},
		"order of families is none": {
			func(e *model.Export) { e.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6"} },
			func(e *model.Export) { e.IPFamilies = []corev1.IPFamily{"IPv6", "IPv4"} }, nil,
		},
		"affinity":                 {same, clientIP(60), []string{"sessionAffinity: None to ClientIP"}},
		"config of the affinity":   {clientIP(60), clientIP(61), []string{"session affinity timeout: 60 s to 61 s"}},
		"the default affinity":     {same, func(e *model.Export) { e.SessionAffinity = corev1.ServiceAffinityNone }, nil},
		"internal traffic policy":  {same, func(e *model.Export) { e.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal) }, []string{"internalTrafficPolicy: Cluster to Local"}},
		"traffic distribution":     {same, func(e *model.Export) { e.TrafficDistribution = ptr.To("PreferClose") }, []string{`trafficDistribution: unset to PreferSameZone`}},
		"tiers":                    {same, func(e *model.Export) { e.Tiers = "self; *" }, []string{"tiers: unset to self; *"}},
		"exported labels":          {same, func(e *model.Export) { e.Labels = map[string]string{"l": "v"} }, []string{`exported labels: none to l="v"`}},
		"value of a label":         {func(e *model.Export) { e.Labels = map[string]string{"l": "v"} }, func(e *model.Export) { e.Labels = map[string]string{"l": "w"} }, []string{`exported labels: l="v" to l="w"`}},
		"exported annotations":     {same, func(e *model.Export) { e.Annotations = map[string]string{"n": "v"} }, []string{`exported annotations: none to n="v"`}},
		"two labels, or one quote": {func(e *model.Export) { e.Labels = map[string]string{"a": "b", "c": "d"} }, func(e *model.Export) { e.Labels = map[string]string{"a": `b","c"="d`} }, []string{`exported labels: a="b",c="d" to a="b\",\"c\"=\"d"`}},
		"selector":                 {same, func(e *model.Export) { e.Selector = map[string]string{"app": "x"} }, []string{`selector: none to app="x"`}},
		"what kube-proxy does for a headless one is none": {
			func(e *model.Export) { e.Type = mcsv1beta1.Headless },
			func(e *model.Export) {
				clientIP(60)(e)
				e.Type, e.InternalTrafficPolicy, e.TrafficDistribution = mcsv1beta1.Headless, ptr.To(corev1.ServiceInternalTrafficPolicyLocal), ptr.To("PreferClose")
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, change := range Changes(Resolve(OldestFirst([]model.Export{standing(c.before)})), Resolve(OldestFirst([]model.Export{standing(c.after)}))) {
				got = append(got, change.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
