// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook"
	"github.com/comity-mcs/comity/webhook/facts"
)

type members struct {
	list       []model.Member
	namespaces map[model.ClusterID]decision.PeerNamespace
}

func (m members) Members() []model.Member { return m.list }
func (m members) Namespace(string) map[model.ClusterID]decision.PeerNamespace {
	return m.namespaces
}

// Whoever is allowed to create an export must not lose it a moment later, when it is
// evaluated as it is stored, and what is refused must not be published if it is stored
// all the same: for policies that read neither the user nor the operation, webhook and
// audit give the same verdict.
func TestWebhookAndAuditAgree(t *testing.T) {
	found, err := source.Read("../charts/comity/files/policies")
	if err != nil {
		t.Fatal(err)
	}
	var list []engine.Policy
	for _, b := range found {
		policy := engine.FromObject(b.Object, time.Now())
		list = append(list, engine.Policy{Name: policy.Name, ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: policy.Rego, Parameters: policy.Parameters}})
	}
	list = append(list, engine.Policy{Name: "owned", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: `package comity.policies.owned

deny contains {"msg": "it has no owner"} if not input.object.metadata.labels.owner

warn contains {"msg": "somewhere it has no namespace"} if {
	some group in input.destinations
	group.namespace.presence != "present"
}
`}})
	policies := engine.New(engine.Options{Timeout: time.Minute})
	for _, result := range policies.Load(list) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}

	rapid.Check(t, func(t *rapid.T) {
		export, reader := drawnCluster(t)
		reader.PeerCache = facts.NewPeerCache()
		reviewer := facts.Reviewer{Reader: reader, Evaluator: policies}
		audit := reviewer.Admit(context.Background(), export)
		answer := created(t, reviewer, export)

		if want := audit.Outcome == decision.Allowed; answer.Allowed != want {
			t.Fatalf("an audit says %s (%v, %s), the webhook %v: %s", audit.Outcome, audit.Violations, audit.Problem, answer.Allowed, answer.Result.Message)
		}
		for _, v := range audit.Violations {
			if !strings.Contains(answer.Result.Message, v.String()) {
				t.Fatalf("the webhook does not say %q: %s", v, answer.Result.Message)
			}
		}
		if len(audit.Warnings) != len(answer.Warnings) {
			t.Fatalf("an audit warns %v, the webhook %v", audit.Warnings, answer.Warnings)
		}
	})
}

// drawnCluster is an export and the cluster that it is in.
func drawnCluster(t *rapid.T) (*mcsv1beta1.ServiceExport, facts.Reader) {
	scope := rapid.SampledFrom([]string{"", "b", "b,c", "a", "z", "b,,c", "c,z"})
	owner := rapid.SampledFrom([]string{"", "x", "y"})
	labels := func(key, value string) map[string]string {
		if value == "" {
			return nil
		}
		return map[string]string{key: value}
	}
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: meta}
	export.Annotations = labels(model.AnnotationExportTo, scope.Draw(t, "scope"))
	export.Labels = labels("owner", owner.Draw(t, "owner"))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	namespace.Annotations = labels(model.AnnotationExportTo, scope.Draw(t, "limit of the namespace"))
	namespace.Labels = labels("comity.dev/identity", owner.Draw(t, "identity"))
	objects := []client.Object{namespace}
	if kind := rapid.SampledFrom([]corev1.ServiceType{"", corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName}).Draw(t, "type"); kind != "" {
		objects = append(objects, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: kind}})
	}
	m := members{namespaces: map[model.ClusterID]decision.PeerNamespace{}}
	for _, id := range []model.ClusterID{"b", "c"} {
		m.list = append(m.list, model.Member{ID: id, Synced: true})
		m.namespaces[id] = decision.PeerNamespace{
			Presence: rapid.SampledFrom([]decision.Presence{decision.Unknown, decision.Present, decision.Absent}).Draw(t, "presence"),
			Labels:   labels("comity.dev/identity", owner.Draw(t, "identity there")),
		}
	}
	return export, facts.Reader{Client: fake.NewClientBuilder().WithObjects(objects...).Build(), Cluster: "a", Peers: m}
}

// created is the webhook's answer to the request that creates the export.
func created(t *rapid.T, reviewer webhook.Reviewer, export *mcsv1beta1.ServiceExport) *admissionv1.AdmissionResponse {
	handlers := webhook.Handlers(webhook.Options{Reviewer: reviewer, Registerer: prometheus.NewRegistry()})
	raw, err := json.Marshal(export)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Operation: admissionv1.Create, Namespace: export.Namespace, Name: export.Name,
			UserInfo: authenticationv1.UserInfo{Username: "eve"}, Object: runtime.RawExtension{Raw: raw},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodPost, webhook.PathValidateServiceExport, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handlers[webhook.PathValidateServiceExport].ServeHTTP(recorder, request)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil {
		t.Fatal(err)
	}
	return review.Response
}
