// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
)

// The oracle is the specification written as slowly and plainly as possible:
// every question is asked of every pair. It shares no line with package merge.

func older(a, b model.Export) bool {
	if !a.CreatedAt.Equal(b.CreatedAt) {
		return a.CreatedAt.Before(b.CreatedAt)
	}
	return a.Cluster < b.Cluster
}

// ranked is one port and its place in the order of precedence.
type ranked struct {
	port mcsv1beta1.ServicePort
	rank int
}

func oraclePorts(ordered []model.Export) []mcsv1beta1.ServicePort {
	var all []ranked
	for _, e := range ordered {
		for _, p := range e.Ports {
			all = append(all, ranked{plainPort(p), len(all)})
		}
	}
	beats := func(same func(a, b mcsv1beta1.ServicePort) bool, among []ranked) []ranked {
		var winners []ranked
		for _, p := range among {
			beaten := false
			for _, q := range among {
				beaten = beaten || q.rank < p.rank && same(p.port, q.port)
			}
			if !beaten {
				winners = append(winners, p)
			}
		}
		return winners
	}
	named := beats(func(a, b mcsv1beta1.ServicePort) bool { return a.Name == b.Name }, all)
	left := beats(func(a, b mcsv1beta1.ServicePort) bool { return a.Port == b.Port && a.Protocol == b.Protocol }, named)
	var ports []mcsv1beta1.ServicePort
	for _, p := range left {
		ports = append(ports, p.port)
	}
	return ports
}

func plainPort(p mcsv1beta1.ServicePort) mcsv1beta1.ServicePort {
	if p.Protocol == "" {
		p.Protocol = corev1.ProtocolTCP
	}
	return p
}

// oracleReasons asks of every export whether it differs from the oldest.
func oracleReasons(ordered []model.Export) []mcsv1beta1.ServiceExportConditionReason {
	oldest := ordered[0]
	differ := func(is func(e model.Export) bool) bool { return slices.ContainsFunc(ordered, is) }
	headless := func(e model.Export) bool { return e.Type == mcsv1beta1.Headless || oldest.Type == mcsv1beta1.Headless }
	has := func(ports []mcsv1beta1.ServicePort, p mcsv1beta1.ServicePort) bool {
		return slices.ContainsFunc(ports, func(q mcsv1beta1.ServicePort) bool { return reflect.DeepEqual(plainPort(p), plainPort(q)) })
	}
	lacks := func(a, b []mcsv1beta1.ServicePort) bool {
		return slices.ContainsFunc(b, func(p mcsv1beta1.ServicePort) bool { return !has(a, p) })
	}
	clientIP := func(e model.Export) bool { return e.SessionAffinity == corev1.ServiceAffinityClientIP }
	var reasons []mcsv1beta1.ServiceExportConditionReason
	for _, r := range []struct {
		reason  mcsv1beta1.ServiceExportConditionReason
		differs func(e model.Export) bool
	}{
		{"PortConflict", func(e model.Export) bool { return lacks(e.Ports, oldest.Ports) || lacks(oldest.Ports, e.Ports) }},
		{"TypeConflict", func(e model.Export) bool { return e.Type != oldest.Type }},
		{"SessionAffinityConflict", func(e model.Export) bool { return !headless(e) && clientIP(e) != clientIP(oldest) }},
		{"SessionAffinityConfigConflict", func(e model.Export) bool {
			return !headless(e) && clientIP(e) && clientIP(oldest) && oracleTimeout(e) != oracleTimeout(oldest)
		}},
		{"LabelsConflict", func(e model.Export) bool {
			return len(e.Labels)+len(oldest.Labels) > 0 && !reflect.DeepEqual(e.Labels, oldest.Labels)
		}},
		{"AnnotationsConflict", func(e model.Export) bool {
			return len(e.Annotations)+len(oldest.Annotations) > 0 && !reflect.DeepEqual(e.Annotations, oldest.Annotations)
		}},
		{"InternalTrafficPolicyConflict", func(e model.Export) bool { return !headless(e) && oraclePolicy(e) != oraclePolicy(oldest) }},
		{"TrafficDistributionConflict", func(e model.Export) bool { return !headless(e) && oracleDistribution(e) != oracleDistribution(oldest) }},
		{"ClusterSelectorsConflict", func(e model.Export) bool { return e.Tiers != oldest.Tiers }},
		{"IPFamilyConflict", func(e model.Export) bool {
			return slices.ContainsFunc(oldest.IPFamilies, func(f corev1.IPFamily) bool { return !slices.Contains(e.IPFamilies, f) })
		}},
	} {
		if differ(r.differs) {
			reasons = append(reasons, r.reason)
		}
	}
	return reasons
}

func oracleTimeout(e model.Export) int32 {
	if c := e.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		return *c.ClientIP.TimeoutSeconds
	}
	return 10800
}

func oraclePolicy(e model.Export) string {
	if e.InternalTrafficPolicy == nil {
		return "Cluster"
	}
	return string(*e.InternalTrafficPolicy)
}

func oracleDistribution(e model.Export) string {
	switch {
	case e.TrafficDistribution == nil:
		return ""
	case *e.TrafficDistribution == "PreferClose":
		return "PreferSameZone"
	}
	return *e.TrafficDistribution
}

// drawExports draws few values from small sets, so that they often collide.
func drawExports(t *rapid.T) []model.Export {
	count := rapid.IntRange(1, 7).Draw(t, "clusters")
	var exports []model.Export
	for i := range count {
		exports = append(exports, drawExport(t, model.ClusterID(fmt.Sprintf("c%d", i))))
	}
	return rapid.Permutation(exports).Draw(t, "order")
}

func drawExport(t *rapid.T, cluster model.ClusterID) model.Export {
	e := model.Export{
		SourceExport:      model.SourceExport{Cluster: cluster, UID: types.UID(fmt.Sprint('9' - cluster[1])), CreatedAt: time.Unix(rapid.Int64Range(1, 3).Draw(t, "created"), 0).UTC()},
		Key:               types.NamespacedName{Namespace: "default", Name: "web"},
		ServiceProperties: model.ServiceProperties{Type: rapid.SampledFrom([]mcsv1beta1.ServiceImportType{"ClusterSetIP", "ClusterSetIP", "Headless"}).Draw(t, "type"), IPFamilies: rapid.SampledFrom([][]corev1.IPFamily{{"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}, {"IPv6", "IPv4"}}).Draw(t, "families"), SessionAffinity: rapid.SampledFrom([]corev1.ServiceAffinity{"", "None", "ClientIP"}).Draw(t, "affinity"), Labels: drawMap(t, "labels"), Annotations: drawMap(t, "annotations"), Tiers: rapid.SampledFrom([]string{"", "self; *", "*"}).Draw(t, "tiers"), Selector: drawMap(t, "selector")},
	}
	if seconds := rapid.SampledFrom([]int32{0, 10, 10800}).Draw(t, "timeout"); seconds > 0 {
		e.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	if p := rapid.SampledFrom([]corev1.ServiceInternalTrafficPolicy{"", "Cluster", "Local"}).Draw(t, "policy"); p != "" {
		e.InternalTrafficPolicy = &p
	}
	if d := rapid.SampledFrom([]string{"", "PreferClose", "PreferSameZone", "PreferSameNode"}).Draw(t, "distribution"); d != "" {
		e.TrafficDistribution = &d
	}
	names := rapid.Permutation([]string{"", "http", "web", "dns"}).Draw(t, "names")
	used := map[string]bool{} // a Service has no two ports of one number and protocol
	for _, name := range names[:rapid.IntRange(0, 4).Draw(t, "ports")] {
		p := drawPort(t, name)
		if at := fmt.Sprint(p.Port, plainPort(p).Protocol); !used[at] {
			used[at] = true
			e.Ports = append(e.Ports, p)
		}
	}
	return e
}

func drawPort(t *rapid.T, name string) mcsv1beta1.ServicePort {
	p := mcsv1beta1.ServicePort{
		Name:     name,
		Protocol: rapid.SampledFrom([]corev1.Protocol{"", "TCP", "UDP"}).Draw(t, "protocol"),
		Port:     rapid.Int32Range(80, 83).Draw(t, "port"),
	}
	if app := rapid.SampledFrom([]string{"", "", "http", "kubernetes.io/h2c"}).Draw(t, "appProtocol"); app != "" {
		p.AppProtocol = &app
	}
	return p
}

func drawMap(t *rapid.T, label string) map[string]string {
	return rapid.SampledFrom([]map[string]string{nil, {}, {"k": "1"}, {"k": "2"}, {"k": "1", "l": "1"}}).Draw(t, label)
}

func TestResolveAgreesWithTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		exports := drawExports(t)
		ordered := slices.Clone(exports)
		for i := range ordered { // bubble sort: slow, and plainly right
			for j := range len(ordered) - 1 - i {
				if older(ordered[j+1], ordered[j]) {
					ordered[j], ordered[j+1] = ordered[j+1], ordered[j]
				}
			}
		}
		resolved, conflicts := merge.ResolveInOrder(merge.OldestFirst(exports))
		oldest := ordered[0]
		if resolved.Type != oldest.Type {
			t.Fatalf("type: got %s, the oldest export has %s", resolved.Type, oldest.Type)
		}
		want := oraclePorts(ordered)
		if diff := cmp.Diff(want, resolved.Ports); diff != "" {
			t.Fatalf("ports (-oracle +merge):\n%s", diff)
		}
		for i, c := range resolved.Constituents {
			if c.Cluster != ordered[i].Cluster {
				t.Fatalf("constituent %d: got %s, want %s", i, c.Cluster, ordered[i].Cluster)
			}
			var strict []mcsv1beta1.ServicePort
			for _, p := range ordered[i].Ports {
				for _, q := range want {
					if p.Name == q.Name && p.Port == q.Port && plainPort(p).Protocol == q.Protocol {
						strict = append(strict, plainPort(p))
					}
				}
			}
			if diff := cmp.Diff(strict, c.Ports); diff != "" {
				t.Fatalf("ports of %s (-oracle +merge):\n%s", c.Cluster, diff)
			}
		}
		checkOldestDecides(t, oldest, resolved)
		var reasons []mcsv1beta1.ServiceExportConditionReason
		for _, c := range conflicts {
			reasons = append(reasons, c.Reason)
		}
		if diff := cmp.Diff(oracleReasons(ordered), reasons); diff != "" {
			t.Fatalf("reasons (-oracle +merge):\n%s", diff)
		}
	})
}

// checkOldestDecides compares what is taken as a whole from the oldest export.
func checkOldestDecides(t *rapid.T, oldest model.Export, resolved *model.Import) {
	if !reflect.DeepEqual(resolved.Labels, oldest.Labels) || !reflect.DeepEqual(resolved.Annotations, oldest.Annotations) ||
		!reflect.DeepEqual(resolved.IPFamilies, oldest.IPFamilies) || resolved.Tiers != oldest.Tiers ||
		!reflect.DeepEqual(resolved.Selector, oldest.Selector) {
		t.Fatalf("labels, annotations, IP families, tiers and selector must be those of %s", oldest.Cluster)
	}
	got := model.Export{
		ServiceProperties: model.ServiceProperties{SessionAffinity: resolved.SessionAffinity, SessionAffinityConfig: resolved.SessionAffinityConfig, InternalTrafficPolicy: resolved.InternalTrafficPolicy, TrafficDistribution: resolved.TrafficDistribution},
	}
	if oldest.Type == mcsv1beta1.Headless {
		if !reflect.DeepEqual(got, model.Export{}) {
			t.Fatalf("a headless import has what only a proxy reads: %+v", got)
		}
		return
	}
	clientIP := oldest.SessionAffinity == corev1.ServiceAffinityClientIP
	if (got.SessionAffinity == corev1.ServiceAffinityClientIP) != clientIP || got.SessionAffinity == "" ||
		(got.SessionAffinityConfig != nil) != clientIP || clientIP && oracleTimeout(got) != oracleTimeout(oldest) ||
		oraclePolicy(got) != oraclePolicy(oldest) || !reflect.DeepEqual(got.TrafficDistribution, oldest.TrafficDistribution) {
		t.Fatalf("affinity and traffic must be those of %s: %+v", oldest.Cluster, got)
	}
}
