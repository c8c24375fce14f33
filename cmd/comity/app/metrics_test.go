// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// stated are objects with a status.
func stated() []client.Object {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	export := func(name string, conditions ...metav1.Condition) client.Object {
		return &mcsv1beta1.ServiceExport{ObjectMeta: named(name), Status: mcsv1beta1.ServiceExportStatus{Conditions: conditions}}
	}
	valid := metav1.Condition{Type: "Valid", Status: "True", Reason: "Valid"}
	return []client.Object{
		export("new"), export("web", valid), export("db", valid),
		export("cart", metav1.Condition{Type: "Conflict", Status: "True", Reason: "PortConflict,TypeConflict"}, metav1.Condition{Type: "Theirs", Status: "True", Reason: "Web"}),
		&mcsv1beta1.ServiceImport{ObjectMeta: named("web"), Status: mcsv1beta1.ServiceImportStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Ready"}}}},
		&policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "owner"}, Status: policyv1alpha1.ExportPolicyStatus{
			Conditions: []metav1.Condition{{Type: "Compiled", Status: "False", Reason: "CompileError"}}, Violations: &policyv1alpha1.Violations{Total: 7},
		}},
		&exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Status: exchangev1alpha1.PeerStatus{
			TokenExpires: ptr.To(metav1.NewTime(time.Unix(1800000000, 0))), Exports: exchangev1alpha1.PeerExports{Read: 5, Refused: 2},
		}},
	}
}

func TestTheLeaderCountsWhatObjectsSay(t *testing.T) {
	elected := make(chan struct{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(objectMetrics{
		reader: fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(stated()...).Build(), elected: elected, log: logr.Discard(), imports: func(gauge) {},
	})
	if diff := cmp.Diff([]string{"comity_build_info", "comity_leader 0"}, gauges(t, registry)); diff != "" {
		t.Errorf("another replica leads (-want +got):\n%s", diff)
	}
	close(elected)
	if diff := cmp.Diff([]string{
		"comity_build_info",
		"comity_exports Conflict PortConflict True 1",
		"comity_exports Conflict TypeConflict True 1",
		"comity_exports Valid Valid True 2",
		"comity_imports Ready Ready True 1",
		"comity_leader 1",
		"comity_peer_exports b Read 5",
		"comity_peer_exports b Refused 2",
		"comity_peer_token_expiration_timestamp_seconds b 1.8e+09",
		"comity_policy_condition Compiled owner CompileError False 1",
		"comity_policy_violations owner 7",
	}, gauges(t, registry)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// gauges are those of a registry with the values of their labels, sorted; of the build only
// that there is one.
func gauges(t *testing.T, registry *prometheus.Registry) (out []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			line := family.GetName()
			if line != "comity_build_info" {
				for _, label := range m.GetLabel() {
					line += " " + label.GetValue()
				}
				line += fmt.Sprintf(" %v", m.GetGauge().GetValue())
			}
			out = append(out, line)
		}
	}
	return out
}

func TestTheExpiryOfACertificateIsRead(t *testing.T) {
	pem, _, err := cert.GenerateSelfSignedCertKey("comity-webhook.comity-system.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := cert.ParseCertsPEM(pem)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tls.crt")
	registry := prometheus.NewRegistry()
	registry.MustRegister(objectMetrics{certificate: file})
	for content, want := range map[string][]string{
		string(pem):      {"comity_build_info", "comity_leader 0", fmt.Sprintf("comity_webhook_certificate_expiration_timestamp_seconds %v", float64(chain[0].NotAfter.Unix()))},
		"half a certifi": {"comity_build_info", "comity_leader 0"},
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, gauges(t, registry)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
