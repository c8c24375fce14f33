// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
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
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, AppProtocol: ptr.To("http"), NodePort: 30080},
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
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
	export, err := LocalExport("a", anExport(), aService())
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
	want, err := LocalExport("a", anExport(), aService())
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
			export, err := LocalExport("a", anExport(), c.change(aService()))
			var reason mcsv1beta1.ServiceExportConditionReason
			var no *NotExportableError
			if errors.As(err, &no) {
				reason = no.Reason
			}
			if reason != c.reason || export.Type != c.kind {
				t.Errorf("got %q with reason %q, want %q with reason %q", export.Type, reason, c.kind, c.reason)
			}
		})
	}
}

func TestOnlyTheSpecsLabelsAreExported(t *testing.T) {
	export, service := anExport(), aService()
	export.Labels, service.Labels = map[string]string{"internal": "1"}, map[string]string{"internal": "2"}
	got, err := LocalExport("a", export, service)
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
		{"a port number out of range", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[1].Port = 70000 }, "spec.ports[1].port"},
		{"a negative port number", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[0].Port = -1 }, "spec.ports[0].port"},
		{"an unknown protocol", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[0].Protocol = "ICMP" }, "spec.ports[0].protocol"},
		{"a port name in capitals", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[0].Name = "HTTP" }, "spec.ports[0].name"},
		{"one of several ports without a name", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[1].Name = "" }, "spec.ports[1].name"},
		{"a port name twice", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[1].Name = "http" }, "spec.ports[1].name"},
		{"a protocol and port twice", func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.Ports[1].Port, r.Spec.Ports[1].Protocol = 80, ""
		}, "spec.ports[1].port"},
		{"an appProtocol that is no name", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports[0].AppProtocol = ptr.To("a b") }, "spec.ports[0].appProtocol"},
		{"too many ports", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports = make([]mcsv1beta1.ServicePort, 1001) }, "spec.ports"},
		{"no ports although not headless", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports = nil }, "spec.ports"},
		{"an unknown family", func(r *exchangev1alpha1.ExportRecord) { r.Spec.IPFamilies = []corev1.IPFamily{"IPv5"} }, "spec.ipFamilies[0]"},
		{"a family twice", func(r *exchangev1alpha1.ExportRecord) { r.Spec.IPFamilies = []corev1.IPFamily{"IPv4", "IPv4"} }, "spec.ipFamilies[1]"},
		{"three families", func(r *exchangev1alpha1.ExportRecord) { r.Spec.IPFamilies = []corev1.IPFamily{"IPv4", "IPv6", "IPv4"} }, "spec.ipFamilies"},
		{"an unknown affinity", func(r *exchangev1alpha1.ExportRecord) { r.Spec.SessionAffinity = "Cookie" }, "spec.sessionAffinity"},
		{"an affinity's config without affinity", func(r *exchangev1alpha1.ExportRecord) { r.Spec.SessionAffinity = "None" }, "spec.sessionAffinityConfig"},
		{"an affinity longer than a day", func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = ptr.To[int32](86401)
		}, "spec.sessionAffinityConfig.clientIP.timeoutSeconds"},
		{"an affinity's config without content", func(r *exchangev1alpha1.ExportRecord) { r.Spec.SessionAffinityConfig.ClientIP = nil }, "spec.sessionAffinityConfig.clientIP.timeoutSeconds"},
		{"an unknown traffic policy", func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicy("Moon"))
		}, "spec.internalTrafficPolicy"},
		{"an unknown traffic distribution", func(r *exchangev1alpha1.ExportRecord) { r.Spec.TrafficDistribution = &long }, "spec.trafficDistribution"},
		{"a label key that is none", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Labels = map[string]string{"a b": ""} }, "spec.labels"},
		{"a label value that is none", func(r *exchangev1alpha1.ExportRecord) { r.Spec.Labels = map[string]string{"a": "b\x1b[31m"} }, "spec.labels"},
		{"annotations too large", func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.Annotations = map[string]string{"a": strings.Repeat("x", 64<<10)}
		}, "spec.annotations"},
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
			if len(err.Error()) > 700 || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("the message is not fit for an event: %q", err)
			}
		})
	}
}

func FuzzFromRecord(f *testing.F) {
	seed, err := json.Marshal(aRecord(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"metadata":{"name":"a.b"},"spec":{"service":{"namespace":"b","name":"a"},"type":"Headless","exportUID":"1","exportedAt":"1970-01-01T00:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		record := &exchangev1alpha1.ExportRecord{}
		if json.Unmarshal(data, record) != nil {
			return
		}
		export, err := FromRecord("a", record)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b\x00") {
				t.Errorf("control characters in %q", err)
			}
			return
		}
		if len(validation.IsDNS1123Label(export.Key.Namespace)) > 0 || len(validation.IsDNS1123Label(export.Key.Name)) > 0 ||
			strings.HasPrefix(export.Key.Namespace, "kube-") || export.Cluster != "a" {
			t.Errorf("accepted %v of cluster %s", export.Key, export.Cluster)
		}
		again, err := FromRecord("a", &exchangev1alpha1.ExportRecord{ObjectMeta: record.ObjectMeta, Spec: Record(export)})
		if err != nil {
			t.Errorf("accepted once, but not again: %v", err)
		}
		if again.Key != export.Key {
			t.Errorf("changed on the way: %v, then %v", export.Key, again.Key)
		}
	})
}
