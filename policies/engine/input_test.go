// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// full is an input with a value in most fields.
func full() decision.Input {
	meta := metav1.ObjectMeta{
		Name: "db", Namespace: "shop", UID: "1-2", ResourceVersion: "7", Generation: 3,
		CreationTimestamp:          metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600))),
		DeletionTimestamp:          ptr.To(metav1.NewTime(time.Date(2026, 2, 2, 3, 4, 5, 0, time.UTC))),
		DeletionGracePeriodSeconds: ptr.To(int64(0)),
		Labels:                     map[string]string{"app": "db", "é\"<": "ü"},
		Annotations:                map[string]string{"comity.dev/export-to": "b,c"},
		Finalizers:                 []string{"f"},
		OwnerReferences:            []metav1.OwnerReference{{Kind: "X", Name: "x", Controller: ptr.To(true)}},
	}
	return decision.Input{
		APIVersion: decision.InputVersion,
		Operation:  decision.Update,
		Subject:    decision.SubjectServiceExport,
		UserInfo:   &decision.UserInfo{Username: "jane", Groups: []string{"a", "b"}},
		Object: &mcsv1beta1.ServiceExport{
			TypeMeta:   metav1.TypeMeta{APIVersion: "multicluster.x-k8s.io/v1alpha1"},
			ObjectMeta: meta,
			Status:     mcsv1beta1.ServiceExportStatus{Conditions: []metav1.Condition{{Type: "Valid", Status: "True"}}},
		},
		Service: &corev1.Service{
			ObjectMeta: meta,
			Spec: corev1.ServiceSpec{
				Type:       corev1.ServiceTypeLoadBalancer,
				ClusterIPs: []string{"10.0.0.1"},
				Ports: []corev1.ServicePort{
					{Name: "a", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("x")},
					{Name: "b", Port: 81, TargetPort: intstr.FromString("http"), NodePort: 30000},
				},
				SessionAffinityConfig:         &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(9))}},
				AllocateLoadBalancerNodePorts: ptr.To(false),
				InternalTrafficPolicy:         ptr.To(corev1.ServiceInternalTrafficPolicyLocal),
			},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "1.2.3.4"}}}},
		},
		Namespace:      &corev1.Namespace{ObjectMeta: meta, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
		Cluster:        "a",
		Scope:          decision.Scope{Clusters: []string{"b", "c"}},
		NamespaceScope: decision.Scope{Clusters: []string{}, Problem: "bad"},
		EffectiveScope: decision.Scope{Clusters: []string{}, Problem: "bad"},
		Peers: map[string]decision.Peer{
			"b": {Labels: map[string]string{"region": "eu"}, Namespace: decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{"x": "y"}}},
		},
		Ports: []mcsv1beta1.ServicePort{{Name: "a", Port: 80, Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("x")}},
		Destinations: []decision.Destination{
			{Clusters: []string{"b"}, Namespace: decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{"x": "y"}}},
		},
	}
}

func TestPoliciesSeeTheJSON(t *testing.T) {
	bare := decision.Input{
		Object: &mcsv1beta1.ServiceExport{},
		Scope:  decision.Scope{Clusters: []string{}}, NamespaceScope: decision.Scope{Clusters: []string{}}, EffectiveScope: decision.Scope{Clusters: []string{}},
		Ports: []mcsv1beta1.ServicePort{}, Destinations: []decision.Destination{},
		Peers: map[string]decision.Peer{"b": {Labels: map[string]string{}, Namespace: decision.PeerNamespace{Labels: map[string]string{}}}},
	}
	for name, in := range map[string]decision.Input{"full": full(), "bare": bare} {
		t.Run(name, func(t *testing.T) {
			seen := in
			typed := metav1.TypeMeta{APIVersion: "multicluster.x-k8s.io/v1beta1", Kind: "ServiceExport"}
			seen.Object = &mcsv1beta1.ServiceExport{TypeMeta: typed, ObjectMeta: in.Object.ObjectMeta, Spec: in.Object.Spec}
			seen.Object.ResourceVersion = "" // nor the status: see decision.AsWritten
			text, err := json.Marshal(seen)
			if err != nil {
				t.Fatal(err)
			}
			want, err := ast.ValueFromReader(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(pretty(t, want), shown(t, in)); diff != "" {
				t.Errorf("-JSON +input:\n%s", diff)
			}
		})
	}
}

// shown is the JSON of what policies see.
func shown(t *testing.T, in decision.Input) string {
	t.Helper()
	value, err := exportOf(t, Writer{}, in, nil).value(true)
	if err != nil {
		t.Fatal(err)
	}
	return pretty(t, value.Value)
}

func pretty(t *testing.T, value ast.Value) string {
	t.Helper()
	plain, err := ast.JSON(value)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(plain, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPoliciesSeeNoNullWhereThereIsNothing(t *testing.T) {
	meta := metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}
	in := decision.Input{
		Object:    &mcsv1beta1.ServiceExport{ObjectMeta: meta},
		OldObject: &mcsv1beta1.ServiceExport{ObjectMeta: meta},
		Service:   &corev1.Service{ObjectMeta: meta},
		Namespace: &corev1.Namespace{ObjectMeta: meta},
		Peers:     map[string]decision.Peer{"b": {}},
		UserInfo:  &decision.UserInfo{},
	}
	got := shown(t, in)
	for _, absent := range []string{"managedFields", `"clusters": null`, `"labels": null`, `"groups": null`} {
		if strings.Contains(got, absent) {
			t.Errorf("a policy sees %s in\n%s", absent, got)
		}
	}
	if strings.Count(got, "null") != strings.Count(got, `"creationTimestamp": null`) {
		t.Errorf("a policy sees a null that is no time in\n%s", got)
	}
	if len(in.Object.ManagedFields) == 0 || in.Object.APIVersion != "" || len(in.Service.ManagedFields) == 0 || in.Peers["b"].Namespace.Labels != nil {
		t.Error("what the caller gave was changed")
	}
	nobody := shown(t, decision.Input{})
	if !strings.Contains(nobody, `"peers": {}`) || !strings.Contains(nobody, `"service": null`) {
		t.Errorf("a policy sees\n%s", nobody)
	}
}

// What policies find in input is what its JSON Schema says, to the last field.
func TestTheInputIsThatOfItsSchema(t *testing.T) {
	imports := decision.ImportInput{Source: decision.ImportSource{Cluster: "b"}, Export: decision.ImportedExport{Name: "db", Ports: full().Ports}}
	w := NewWriter()
	document := func(on *Subject, err error) any {
		t.Helper()
		value, err := InputJSON(on, err)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	misspelled := map[string]any{"clutser": "a"}
	for name, tc := range map[string]struct {
		stage v1alpha1.Stage
		input any
		fits  bool
	}{
		"an export":              {v1alpha1.StageExport, document(w.Export(full())), true},
		"an export without more": {v1alpha1.StageExport, document(w.Export(decision.Input{Object: &mcsv1beta1.ServiceExport{}})), true},
		"an import":              {v1alpha1.StageImport, document(w.Import(imports)), true},
		"an import as an export": {v1alpha1.StageExport, document(w.Import(imports)), false},
		"a misspelled field":     {v1alpha1.StageExport, misspelled, false},
	} {
		t.Run(name, func(t *testing.T) {
			results, err := rego.New(rego.Query("json.match_schema(input.document, input.schema)"),
				rego.Input(map[string]any{"document": tc.input, "schema": inputSchema(tc.stage)})).Eval(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if answer := results[0].Expressions[0].Value.([]any); answer[0] != tc.fits {
				t.Errorf("%v, expected %v: %v", answer[0], tc.fits, answer[1])
			}
		})
	}
}

// Every builtin that a policy may not call has a reason, and something in its place.
func TestEveryRemovedBuiltinSaysWhy(t *testing.T) {
	left := map[string]bool{}
	for _, b := range Capabilities().Builtins {
		left[b.Name] = true
	}
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		if why := whyRemoved(b.Name); left[b.Name] == (why != "") {
			t.Errorf("%s: available: %v%s", b.Name, left[b.Name], why)
		}
	}
}

// What OPA says of an evaluation has no name that nobody wrote, and no character that nobody sees.
func TestAFailureIsDescribedInWordsOfThePolicy(t *testing.T) {
	err := &topdown.Error{Message: "f(__local16__, __local_f_3__): \u202eno", Location: ast.NewLocation(nil, "p.rego", 3, 1)}
	if got, want := Described(fmt.Errorf("eval: %w", err)).Error(), `p.rego:3:1: f(a value, a value): \u202eno`; got != want {
		t.Errorf("got %q, expected %q", got, want)
	}
}
