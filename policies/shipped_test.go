// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// all are the policies of this repository.
func all(t *testing.T) []source.Policy {
	t.Helper()
	found, err := source.Read(".")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// loaded is an engine with these policies, as they are shipped.
func loaded(t *testing.T, list ...source.Policy) *engine.Engine {
	t.Helper()
	e := engine.New(engine.Options{Timeout: time.Minute})
	var given []engine.Policy
	for _, b := range list {
		given = append(given, engine.FromObject(b.Object, time.Now()))
	}
	for _, result := range e.Load(given) {
		if result.Err != nil {
			t.Fatalf("policy %s: %v", result.Name, result.Err)
		}
	}
	return e
}

func named(t *testing.T, name string) source.Policy {
	t.Helper()
	for _, b := range all(t) {
		if b.Name() == name {
			return b
		}
	}
	t.Fatalf("there is no policy %s", name)
	return source.Policy{}
}

func TestEveryPolicyCompilesAsItIsShipped(t *testing.T) {
	loaded(t, all(t)...)
}

// TestEveryPolicyHasMetadata: a policy to copy says what it is for, and its reason is
// its own.
func TestEveryPolicyHasMetadata(t *testing.T) {
	reasons := map[string]string{}
	for _, b := range all(t) {
		module, err := ast.ParseModuleWithOpts(b.Name(), b.Object.Spec.Rego, ast.ParserOptions{RegoVersion: ast.RegoV1, ProcessAnnotation: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(module.Annotations) != 1 || module.Annotations[0].Scope != "package" {
			t.Fatalf("%s: expected METADATA of the package alone, got %v", b.Name(), module.Annotations)
		}
		given := module.Annotations[0]
		reason, _ := given.Custom["reason"].(string)
		severity, _ := given.Custom["severity"].(string)
		if given.Title == "" || given.Description == "" || reason == "" || !strings.Contains("low medium high", severity) || severity == "" {
			t.Errorf("%s: METADATA has title %q, description of %d bytes, custom.reason %q, custom.severity %q (low, medium or high)",
				b.Name(), given.Title, len(given.Description), reason, severity)
		}
		if other := reasons[reason]; other != "" {
			t.Errorf("policies %s and %s have one reason, %s", other, b.Name(), reason)
		}
		reasons[reason] = b.Name()
	}
}

// TestNoParameterIsWithoutSchema: a parameter that is misspelled must be refused.
func TestNoParameterIsWithoutSchema(t *testing.T) {
	for _, b := range all(t) {
		if (b.Object.Spec.Parameters != nil) != (b.Object.Spec.ParametersSchema != nil) {
			t.Errorf("%s: has parameters: %t; has a schema of them: %t", b.Name(), b.Object.Spec.Parameters != nil, b.Object.Spec.ParametersSchema != nil)
		}
		if b.Object.Spec.Parameters == nil {
			continue
		}
		e := loaded(t)
		misspelled := b.Object.DeepCopy()
		misspelled.Spec.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"misspelled": true}`)}
		if _, err := e.Change(engine.FromObject(misspelled, time.Now())); err == nil || !strings.Contains(err.Error(), "misspelled") {
			t.Errorf("%s: with a parameter that it does not have: %v; expected an error that names it", b.Name(), err)
		}
	}
}

func TestKeysOfNamespaceSamenessMustBeAList(t *testing.T) {
	policy := named(t, "namespace-sameness").Object
	policy.Spec.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"keys": "comity.dev/identity"}`)}
	if _, err := loaded(t).Change(engine.FromObject(policy, time.Now())); err == nil || !strings.Contains(err.Error(), "keys") {
		t.Errorf("got %v; expected an error that names keys: a string would compare nothing", err)
	}
}

// export is ServiceExport shop/db of cluster a, for all clusters or for those named, as
// the policies see it. Its namespace is the same in b, and another one in c.
func export(operation decision.Operation, published bool, clusters ...string) decision.Input {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "db"}
	present := func(identity string) decision.PeerNamespace {
		return decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{"comity.dev/identity": identity}}
	}
	scope := decision.Scope{All: len(clusters) == 0, Clusters: clusters}
	in := decision.Input{
		APIVersion: decision.InputVersion, Operation: operation, Subject: decision.SubjectServiceExport, Cluster: "a",
		Object: &mcsv1beta1.ServiceExport{ObjectMeta: meta}, Published: published,
		Service:   &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"comity.dev/identity": "1"}}},
		Scope:     scope, NamespaceScope: decision.Scope{All: true}, EffectiveScope: scope,
		Peers: map[string]decision.Peer{"b": {Namespace: present("1")}, "c": {Namespace: present("2")}},
	}
	for _, id := range []string{"b", "c"} {
		if scope.All || strings.Contains(strings.Join(clusters, ","), id) {
			in.Destinations = append(in.Destinations, decision.Destination{Clusters: []string{id}, Namespace: in.Peers[id].Namespace})
		}
	}
	if operation != decision.Audit {
		in.UserInfo = &decision.UserInfo{Username: "jane"}
	}
	return in
}

// updated is an update of a published export, which had these clusters before.
func updated(in decision.Input, before ...string) decision.Input {
	was := export(decision.Audit, in.Published, before...)
	in.Operation, in.OldObject, in.Before = decision.Update, was.Object, &was
	return in
}

// TestTheBaselineKeepsWhatIsPublished is what export-scope and namespace-sameness mean
// together with existing: Keep of their policy.yaml.
func TestTheBaselineKeepsWhatIsPublished(t *testing.T) {
	external := func(in decision.Input) decision.Input {
		in.Service.Spec.Type = corev1.ServiceTypeExternalName
		return in
	}
	type answer struct {
		Outcome  string
		Denied   []string
		Warnings []string
	}
	scope, sameness, name := []string{"export-scope"}, []string{"namespace-sameness"}, []string{"no-external-name"}
	tests := map[string]struct {
		in   decision.Input
		want answer
	}{
		"nothing is wrong with it":                       {export(decision.Create, false, "b"), answer{Outcome: "Allowed"}},
		"a request for a stranger is refused":            {export(decision.Create, false, "gone"), answer{"Denied", scope, nil}},
		"a stranger in what is merely stored is refused": {export(decision.Audit, false, "gone"), answer{"Denied", scope, nil}},
		"a member that left takes nothing along":         {export(decision.Audit, true, "b", "gone"), answer{"Allowed", nil, scope}},
		"a request for a cluster with another namespace": {export(decision.Create, false, "c"), answer{"Denied", sameness, nil}},
		"FAULT 20: what slipped by is found by the audit": {
			export(decision.Audit, false, "c"), answer{"Denied", sameness, nil},
		},
		"a namespace that becomes another one takes nothing along": {export(decision.Audit, true, "c"), answer{"Allowed", nil, sameness}},
		"an export for all is only warned of":                      {export(decision.Create, false), answer{"Allowed", nil, sameness}},
		"an update that leaves the scope alone passes":             {updated(export("", true, "b", "gone"), "b", "gone"), answer{"Allowed", nil, scope}},
		"one that removes one of two strangers passes":             {updated(export("", true, "b", "gone"), "b", "gone", "lost"), answer{"Allowed", nil, scope}},
		"one that removes a cluster with another namespace passes": {updated(export("", true, "b"), "b", "c"), answer{Outcome: "Allowed"}},
		"one that adds a stranger is refused, for it alone":        {updated(export("", true, "b", "gone", "lost"), "b", "gone"), answer{"Denied", scope, scope}},
		"an update of what is merely stored is refused":            {updated(export("", false, "b", "gone"), "b", "gone"), answer{"Denied", scope, nil}},
		"an ExternalName is withdrawn although it is published":    {external(export(decision.Audit, true, "b")), answer{"Denied", name, nil}},
	}
	baselines, err := source.Read("../charts/comity/files/policies")
	if err != nil {
		t.Fatal(err)
	}
	e := loaded(t, baselines...)
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			verdict := e.Evaluate(t.Context(), test.in)
			got := answer{verdict.Outcome.String(), policiesOf(verdict.Violations), policiesOf(verdict.Warnings)}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%+v", diff, verdict)
			}
		})
	}
}

func policiesOf(violations []decision.Violation) (names []string) {
	for _, v := range violations {
		names = append(names, v.Policy)
	}
	return names
}

// TestALibraryPolicyThatLimitsClustersNeedsNoKeep: what an audit excludes is not
// published to the excluded, and is published to the others. With existing: Keep, the
// next audit would find the export published, and share it with the excluded.
func TestALibraryPolicyThatLimitsClustersNeedsNoKeep(t *testing.T) {
	for _, b := range all(t) {
		if strings.Contains(b.Object.Spec.Rego, `"clusters":`) && b.Object.Spec.Existing != v1alpha1.Withdraw {
			t.Errorf("%s names clusters in deny, and existing is %s; expected Withdraw", b.Name(), b.Object.Spec.Existing)
		}
	}
}
