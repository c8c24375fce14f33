// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var created = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func anExport() *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u-1", CreationTimestamp: metav1.NewTime(created)},
		Spec: mcsv1beta1.ServiceExportSpec{
			ExportedLabels: map[string]string{"team": "blue"}, ExportedAnnotations: map[string]string{"example.com/doc": "Über uns"},
		},
	}
}

func aService() *corev1.Service {
	return &corev1.Service{Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"},
		Type:     corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, AppProtocol: ptr.To("http"), NodePort: 30080},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns-udp")},
		},
		SessionAffinity:       corev1.ServiceAffinityClientIP,
		SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10)}},
		InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
		TrafficDistribution:   ptr.To(corev1.ServiceTrafficDistributionPreferClose),
	}}
}

// aRecord is what anExport and aService are published as, after a stay in an API server.
func aRecord(t testing.TB) *exchangev1alpha1.ExportRecord {
	t.Helper()
	export, err := LocalExport("a", anExport(), aService(), true)
	if err != nil {
		t.Fatal(err)
	}
	record := &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: "web.shop"}, Spec: Record(export)}
	data, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	out := &exchangev1alpha1.ExportRecord{}
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnExportSurvivesTheWayThroughTheExchange(t *testing.T) {
	want, err := LocalExport("a", anExport(), aService(), true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := FromRecord("a", aRecord(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the peer's view differs from ours (-ours +peer):\n%s", diff)
	}
}

func TestLocalExport(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*corev1.Service) *corev1.Service
		reason mcsv1beta1.ServiceExportConditionReason
		kind   mcsv1beta1.ServiceImportType
	}{
		{"a ClusterIP Service is imported with an IP", func(s *corev1.Service) *corev1.Service { return s }, "", mcsv1beta1.ClusterSetIP},
		{"a NodePort Service too", func(s *corev1.Service) *corev1.Service { s.Spec.Type = corev1.ServiceTypeNodePort; return s }, "", mcsv1beta1.ClusterSetIP},
		{"a LoadBalancer Service too", func(s *corev1.Service) *corev1.Service { s.Spec.Type = corev1.ServiceTypeLoadBalancer; return s }, "", mcsv1beta1.ClusterSetIP},
		{"a headless Service stays headless", func(s *corev1.Service) *corev1.Service { s.Spec.ClusterIP = "None"; return s }, "", mcsv1beta1.Headless},
		{"an ExternalName Service is never exported", func(s *corev1.Service) *corev1.Service { s.Spec.Type = corev1.ServiceTypeExternalName; return s },
			mcsv1beta1.ServiceExportReasonInvalidServiceType, ""},
		{"a derived Service is not exported again", func(s *corev1.Service) *corev1.Service {
			s.Labels = map[string]string{model.LabelServiceImported: "true"}
			return s
		}, mcsv1beta1.ServiceExportReasonInvalidServiceType, ""},
		{"an absent Service exports nothing yet", func(*corev1.Service) *corev1.Service { return nil }, mcsv1beta1.ServiceExportReasonNoService, ""},
		{"a Service on its way out exports nothing any more", func(s *corev1.Service) *corev1.Service {
			s.DeletionTimestamp = ptr.To(metav1.Now())
			return s
		}, mcsv1beta1.ServiceExportReasonNoService, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			service := c.change(aService())
			export, err := LocalExport("a", anExport(), service, false)
			reason, message := model.NotExportable(types.NamespacedName{Namespace: anExport().Namespace, Name: anExport().Name}, service)
			if refused := err != nil && err.Error() == message; refused != (reason != "") || reason != c.reason || export.Type != c.kind {
				t.Errorf("got %q with reason %q, want %q with reason %q", export.Type, reason, c.kind, c.reason)
			}
		})
	}
}

func TestOnlyTheSpecsLabelsAreExported(t *testing.T) {
	export, service := anExport(), aService()
	export.Labels, service.Labels = map[string]string{"internal": "1"}, map[string]string{"internal": "2"}
	got, err := LocalExport("a", export, service, false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"team": "blue"}, got.Labels); diff != "" {
		t.Error(diff)
	}
}

func TestARecordIsNotBelieved(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		name  string
		spoil func(*exchangev1alpha1.ExportRecord)
		field string
	}{
		{"a namespace that is a path", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Service.Namespace = "../kube-system" }, "spec.service.namespace"},
		{"a namespace of the cluster itself", func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.Service.Namespace, r.Name = "kube-system", "web.kube-system"
		}, "spec.service.namespace"},
		{"no namespace", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Service.Namespace = "" }, "spec.service.namespace"},
		{"a name with a dot", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Service.Name = "web.evil" }, "spec.service.name"},
		{"a name too long", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Service.Name = long }, "spec.service.name"},
		{"a record of another's name", func(r *exchangev1alpha1.ExportRecord) { r.Name = "other.shop" }, "metadata.name"},
		{"no UID", func(r *exchangev1alpha1.ExportRecord) { r.Spec.ExportUID = "" }, "spec.exportUID"},
		{"a UID with a line break", func(r *exchangev1alpha1.ExportRecord) { r.Spec.ExportUID = "a\nb" }, "spec.exportUID"},
		{"a UID too long", func(r *exchangev1alpha1.ExportRecord) { r.Spec.ExportUID = types.UID(long) }, "spec.exportUID"},
		{"no time", func(r *exchangev1alpha1.ExportRecord) { r.Spec.ExportedAt = metav1.Time{} }, "spec.exportedAt"},
		{"an unknown type", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Type = "ExternalName" }, "spec.type"},
		{"a port number out of range", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[1].Port = 70000 }, "spec.ports[1]"},
		{"a negative port number", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[0].Port = -1 }, "spec.ports[0]"},
		{"an unknown protocol", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[0].Protocol = "ICMP" }, "spec.ports[0]"},
		{"a port name in capitals", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[0].Name = "HTTP" }, "spec.ports[0]"},
		{"one of several ports without a name", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[1].Name = "" }, "spec.ports[1]"},
		{"a port name twice", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[1].Name = "http" }, "spec.ports[1]"},
		{"a protocol and port twice", func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.Ports[1].Port, r.Spec.Ports[1].Protocol = 80, ""
		}, "spec.ports[1]"},
		{"an appProtocol that is no name", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[0].AppProtocol = ptr.To("a b") }, "spec.ports[0]"},
		{"too many ports", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports = make([]mcsv1beta1.ServicePort, 1001) }, "spec.ports"},
		{"no ports although not headless", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports = nil }, "spec.ports"},
		{"an unknown family", func(r *exchangev1alpha1.ExportRecord) { r.Spec.IPFamilies = []corev1.IPFamily{"IPv5"} }, "spec.ipFamilies"},
		{"a family twice", func(r *exchangev1alpha1.ExportRecord) { r.Spec.IPFamilies = []corev1.IPFamily{"IPv4", "IPv4"} }, "spec.ipFamilies"},
		{"three families", func(r *exchangev1alpha1.ExportRecord) { r.Spec.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6", "IPv4"} }, "spec.ipFamilies"},
		{"an unknown affinity", func(r *exchangev1alpha1.ExportRecord) { r.Spec.SessionAffinity = "Cookie" }, "spec.sessionAffinity"},
		{"an affinity's config without affinity", func(r *exchangev1alpha1.ExportRecord) { r.Spec.SessionAffinity = "None" }, "spec.sessionAffinityConfig"},
		{"an affinity longer than a day", func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = ptr.To[int32](86401)
		}, "spec.sessionAffinityConfig"},
		{"an affinity's config without content", func(r *exchangev1alpha1.ExportRecord) { r.Spec.SessionAffinityConfig.ClientIP = nil }, "spec.sessionAffinityConfig"},
		{"an unknown traffic policy", func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicy("Moon"))
		}, "spec.internalTrafficPolicy"},
		{"an unknown traffic distribution", func(r *exchangev1alpha1.ExportRecord) { r.Spec.TrafficDistribution = &long }, "spec.trafficDistribution"},
		{"a label key that is none", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Labels = map[string]string{"a b": ""} }, "spec.labels"},
		{"a label value that is none", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Labels = map[string]string{"a": "b\x1b[31m"} }, "spec.labels"},
		{"annotations too large", func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.Annotations = map[string]string{"a": strings.Repeat("x", 64<<10)}
		}, "spec.annotations"},
		{"a selector that is none", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Selector = map[string]string{"a": "b\x00"} }, "spec.selector"},
		{"targets without a selector", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Selector = nil }, "spec.targets"},
		{"a target of no port", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Targets[0].Port = 81 }, "spec.targets[0]"},
		{"a target twice", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Targets[1] = r.Spec.Targets[0] }, "spec.targets[1]"},
		{"a target of a protocol with an escape", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Targets[0].Protocol = "\x1b" }, "spec.targets[0]"},
		{"a target that is no port", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Targets[0].TargetPort = intstr.FromInt32(65536) }, "spec.targets[0]"},
		{"a target that is no name", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Targets[1].TargetPort = intstr.FromString("a\nb") }, "spec.targets[1]"},
		{"annotations that are no text", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Annotations = map[string]string{"a": "\xff"} }, "spec.annotations"},
	} {
		t.Run(c.name, func(t *testing.T) {
			record := aRecord(t)
			c.spoil(record)
			_, err := FromRecord("b", record)
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, part := range []string{"ExportRecord", "cluster b", c.field + ": ", "expected"} {
				if !strings.Contains(err.Error(), part) && part != "expected" || part == "expected" && !strings.Contains(err.Error(), part) && !strings.Contains(err.Error(), "UTF-8") {
					t.Errorf("the message %q lacks %q", err, part)
				}
			}
			fitForATerminal(t, err.Error(), 700)

			// Its writer hears which field it is, unless it cannot be told what the record is about.
			want := model.Refusal{ExportUID: record.Spec.ExportUID, Field: c.field}
			nameless := strings.HasPrefix(c.field, "spec.service.") || c.field == "metadata.name" || c.field == "spec.exportUID"
			got := Refusal(record)
			if (got == nil) != nameless || got != nil && *got != want {
				t.Errorf("its writer hears %+v; want %+v", got, want)
			}
		})
	}
	if got := Refusal(aRecord(t)); got != nil {
		t.Errorf("the writer of a valid record hears %+v", got)
	}
}

func TestASelectorIsPublishedOnlyWhenAskedFor(t *testing.T) {
	export, err := LocalExport("a", anExport(), aService(), false)
	if err != nil || export.Selector != nil || export.Targets != nil {
		t.Fatalf("got %v, %v, %v", export.Selector, export.Targets, err)
	}
	if export, err = LocalExport("a", anExport(), aService(), true); err != nil {
		t.Fatal(err)
	}
	want := []model.Target{
		{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(80)},
		{Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString("dns-udp")},
	}
	if diff := cmp.Diff(want, export.Targets); diff != "" {
		t.Error(diff)
	}
	none := aService()
	none.Spec.Selector = nil
	bare, _ := LocalExport("a", anExport(), none, true)
	if bare.Selector != nil || bare.Targets != nil {
		t.Errorf("a Service without a selector gave %v, %v", bare.Selector, bare.Targets)
	}
}

// Importers say what is wrong with tiers that they cannot read, and go on with those before.
func TestTiersAreExportedAsTheyAre(t *testing.T) {
	for text, want := range map[string]string{
		"": "", " self;\n* ": "self; *", "local": "local",
		strings.Repeat("a", 3000): strings.Repeat("a", model.MaxTiersBytes) + "…",
	} {
		e := anExport()
		e.Annotations = map[string]string{model.AnnotationTiers: text}
		export, err := LocalExport("a", e, aService(), false)
		record := &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Name: "web.shop"}, Spec: Record(export)}
		if err != nil || record.Spec.Tiers != want {
			t.Errorf("%q: exported with %q, %v", text, record.Spec.Tiers, err)
		}
		if read, err := FromRecord("a", record); err != nil || read.Tiers != want {
			t.Errorf("%q: read as %q, %v", text, read.Tiers, err)
		}
	}
}

func TestTheAgeOfAnExport(t *testing.T) {
	for created, want := range map[string]string{
		"2026-05-01T12:00:00Z":      "2026-05-01T12:00:00Z",
		"2026-05-01T13:00:00+02:00": "2026-05-01T11:00:00Z",
		"2099-01-01T00:00:00Z":      "2099-01-01T00:00:00Z", // younger than all others, as it should be
		"1970-01-01T00:00:01Z":      "9999-01-01T00:00:00Z", // no clock, or forged
		"2019-12-31T23:59:59Z":      "9999-01-01T00:00:00Z",
		"9999-12-31T23:59:59Z":      "9999-01-01T00:00:00Z",
	} {
		at, err := time.Parse(time.RFC3339, created)
		if err != nil {
			t.Fatal(err)
		}
		e := anExport()
		e.CreationTimestamp = metav1.NewTime(at)
		own, err := LocalExport("a", e, aService(), false)
		if err != nil {
			t.Fatal(err)
		}
		record := aRecord(t)
		record.Spec.ExportedAt = metav1.NewTime(at)
		theirs, err := FromRecord("a", record)
		if err != nil {
			t.Fatal(err)
		}
		if got := theirs.CreatedAt.Format(time.RFC3339); got != want || !own.CreatedAt.Equal(theirs.CreatedAt) {
			t.Errorf("%s: got %s from the record and %s from the ServiceExport, want %s", created, got, own.CreatedAt, want)
		}
	}
}

// FAULT 13: names at every limit.
func TestNamesAtEveryLimit(t *testing.T) {
	for length, valid := range map[int]bool{0: false, 1: true, 62: true, 63: true, 64: false, 253: false} {
		name := strings.Repeat("x", length)
		for _, key := range []types.NamespacedName{{Namespace: name, Name: "web"}, {Namespace: "shop", Name: name}, {Namespace: name, Name: name}} {
			record := aRecord(t)
			record.Name = model.RecordName(key.Namespace, key.Name)
			record.Spec.Service = exchangev1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name}
			id := model.ClusterID(strings.Repeat("c", 63))
			export, err := FromRecord(id, record)
			if valid && (err != nil || export.Key != key || export.Cluster != id) {
				t.Errorf("%d characters: %v, %v", length, export.Key, err)
			}
			if !valid && err == nil {
				t.Errorf("%d characters: accepted %v", length, export.Key)
			}
			slice := copyOf(t, aSlice("10.1.0.1"))
			slice.Labels[model.LabelExportNamespace], slice.Labels[model.LabelExportName] = key.Namespace, key.Name
			if clean, _ := CleanSlice(slice, aFilter()); (clean != nil) != valid {
				t.Errorf("%d characters: the slice is imported: %t", length, clean != nil)
			}
		}
	}
}

func TestWhatSpeaksToTheImportingClusterIsNotExported(t *testing.T) {
	reserved := map[string]string{
		"team": "blue", "comity.dev/on-lost": "withdraw", "comity.dev/applied": "x", "multicluster.kubernetes.io/service-name": "other",
		"service.kubernetes.io/service-proxy-name": "none", "kubernetes.io/service-name": "local",
		"app.kubernetes.io/instance": "billing", "argocd.argoproj.io/instance": "billing", "meta.helm.sh/release-name": "billing",
	}
	record := aRecord(t)
	record.Spec.Labels, record.Spec.Annotations = reserved, reserved
	theirs, err := FromRecord("a", record)
	if err != nil {
		t.Fatal(err)
	}
	e := anExport()
	e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = reserved, reserved
	own, err := LocalExport("a", e, aService(), false)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]map[string]string{
		"labels of a record": theirs.Labels, "annotations of a record": theirs.Annotations, "own labels": own.Labels, "own annotations": own.Annotations,
	} {
		if diff := cmp.Diff(map[string]string{"team": "blue"}, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if len(reserved) != 9 {
		t.Error("the record was changed")
	}
}
