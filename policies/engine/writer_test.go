// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/randfill"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// filled is an input with random values in all fields that a policy can read.
func filled(seed int64) decision.Input {
	var in decision.Input
	randfill.NewWithSeed(seed).NilChance(0.2).NumElements(1, 3).MaxDepth(8).Funcs(
		func(t *metav1.Time, c randfill.Continue) { t.Time = time.Unix(c.Int63n(1e10), 0) },
		func(m *metav1.ManagedFieldsEntry, _ randfill.Continue) { *m = metav1.ManagedFieldsEntry{} },
	).Fill(&in)
	in.Before = nil
	return in
}

// exportOf is the subject that the writer gives, read.
func exportOf(t *testing.T, w Writer, in decision.Input, terms *lru.Cache) *Subject {
	t.Helper()
	on, err := w.Export(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := on.read(terms); err != nil {
		t.Fatal(err)
	}
	return on
}

// What policies see does not depend on how it is converted, nor on what was evaluated
// before with the same engine.
func TestPoliciesSeeTheJSONHoweverItIsConverted(t *testing.T) {
	terms, writer, all := lru.New(maxTerms), NewWriter(), map[int64]decision.Input{}
	for seed := range int64(60) {
		if seed < 20 {
			all[seed] = filled(seed)
		}
		in := all[seed%20] // most come again
		want := shown(t, in)
		on := exportOf(t, writer, in, terms)
		whole, err := on.value(true)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, pretty(t, whole.Value)); diff != "" {
			t.Fatalf("seed %d, whole (-want +got):\n%s", seed, diff)
		}
		bits, err := on.value(false)
		if err != nil {
			t.Fatal(err)
		}
		// One field after the other, as policies read them.
		read := map[string]any{}
		for _, name := range fieldsOf("Export") {
			if term := bits.Value.(ast.Object).Get(ast.StringTerm(name)); term != nil {
				read[name] = json.RawMessage(pretty(t, forced(term.Value)))
			}
		}
		text, err := json.MarshalIndent(read, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text, []byte(want)) {
			t.Fatalf("seed %d, bit by bit (-want +got):\n%s", seed, cmp.Diff(want, string(text)))
		}
	}
}

// forced is a value of which all was read.
func forced(value ast.Value) ast.Value {
	if object, is := value.(ast.Object); is {
		copied := ast.NewObject()
		object.Foreach(func(k, v *ast.Term) { copied.Insert(k, ast.NewTerm(forced(v.Value))) })
		return copied
	}
	return value
}

// The object of every test has a value in every field, so that none is forgotten.
func TestEveryFieldIsConverted(t *testing.T) {
	in := full()
	in.OldObject = in.Object
	value, err := exportOf(t, Writer{}, in, nil).value(true)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fieldsOf("Export") {
		if term := value.Value.(ast.Object).Get(ast.StringTerm(name)); term == nil || term.Value.Compare(ast.NullValue) == 0 {
			t.Errorf("input.%s is %v", name, term)
		}
	}
	plain, err := InputJSON(Writer{}.Export(in))
	if err != nil {
		t.Fatal(err)
	}
	metadata := plain.(map[string]any)["object"].(map[string]any)["metadata"].(map[string]any)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[metav1.ObjectMeta]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, has := metadata[name]; !has && name != "managedFields" && name != "resourceVersion" && !reflect.ValueOf(in.Object.ObjectMeta).FieldByIndex(f.Index).IsZero() {
			t.Errorf("metadata.%s is not there", name)
		}
	}
}

// The Service in a request has UID and resourceVersion of the stored one: whoever
// changes it must not get the verdict on the stored one.
func TestATermIsKeptByContentAndNotByVersion(t *testing.T) {
	e := engineOf(t, `deny contains {"msg": "no"} if input.service.spec.type == "ExternalName"`)
	in := full()
	stored := in.Service
	for _, step := range []struct {
		kind corev1.ServiceType
		want decision.Outcome
	}{{corev1.ServiceTypeClusterIP, decision.Allowed}, {corev1.ServiceTypeExternalName, decision.Denied}, {corev1.ServiceTypeClusterIP, decision.Allowed}} {
		changed := *stored
		changed.Spec.Type = step.kind
		in.Service = &changed
		if got := e.Evaluate(t.Context(), in); got.Outcome != step.want {
			t.Errorf("%s: %s %s, want %s", step.kind, got.Outcome, got.Problem, step.want)
		}
	}
}

func TestPeersThatAreReplacedAreSeen(t *testing.T) {
	e := engineOf(t, `deny contains {"msg": id} if some id, _ in input.peers`)
	in := full()
	for n := range 5 {
		id := fmt.Sprintf("cluster-%d", n)
		// In place and by another map in turn.
		if n%2 == 0 {
			in.Peers = map[string]decision.Peer{}
		}
		clear(in.Peers)
		in.Peers[id] = decision.Peer{}
		got := e.Evaluate(t.Context(), in)
		if len(got.Violations) != 1 || got.Violations[0].Message != id {
			t.Errorf("got %+v, want %s", got, id)
		}
	}
}

// A policy that replaces a part of its input must change nothing for the policies
// after it, nor for the requests after it.
func TestAPolicyCannotChangeWhatOthersSee(t *testing.T) {
	for name, rule := range map[string]string{
		"in a part that is kept":       `deny contains {"msg": "changed"} if owned with input.namespace.metadata.labels as {"owner": "eve"}`,
		"in a part of the request":     `deny contains {"msg": "changed"} if owned with input.object.metadata.labels as {"owner": "eve"}`,
		"in all of it":                 `deny contains {"msg": "changed"} if owned with input as {"namespace": {"metadata": {"labels": {"owner": "eve"}}}}`,
		"in what object.union returns": `deny contains {"msg": "changed"} if object.union(input, {"namespace": {"metadata": {"labels": {"owner": "eve"}}}}).namespace.metadata.labels.owner == "eve"`,
	} {
		t.Run(name, func(t *testing.T) {
			changing := Policy{Name: "a", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "package comity.policies.a\n\n" + rule + "\n\n" + `owned if input.namespace.metadata.labels.owner == "eve"

owned if input.object.metadata.labels.owner == "eve"

warn contains {"msg": "unchanged"} if not owned
`}}
			reading := Policy{Name: "b", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "package comity.policies.b\n\n" +
				"deny contains {\"msg\": \"it sees what a policy before it made up\"} if input.namespace.metadata.labels.owner\n\n" +
				"deny contains {\"msg\": \"it sees what a policy before it made up\"} if input.object.metadata.labels.owner\n"}}
			e := New(Options{Timeout: time.Minute})
			for _, result := range e.Load([]Policy{changing, reading}) {
				if result.Err != nil {
					t.Fatal(result.Err)
				}
			}
			in := full()
			for range 3 {
				got := e.Evaluate(t.Context(), in)
				if len(got.Violations) != 1 || got.Violations[0].Policy != "a" || len(got.Warnings) != 1 {
					t.Fatalf("got %+v", got)
				}
			}
		})
	}
}

// What builtins write of the input is its JSON, whichever part they are given.
func TestBuiltinsGetTheJSONOfTheInput(t *testing.T) {
	for _, expression := range []string{
		"json.marshal(input)", "json.marshal(input.object)", "json.marshal(input.object.metadata)", "json.marshal(input.object.spec)", "json.marshal(input.scope)",
		`sprintf("%v", [input.object])`, `sprintf("%v", [input.userInfo])`, "yaml.marshal(input.object)", "json.marshal(every_field)",
		`concat(",", sort([json.marshal(v) | some k, v in input]))`, `json.marshal([v | walk(input, [_, v]); is_string(v)])`,
		`json.marshal(object.keys(input.object.metadata))`, `json.marshal(object.get(input, ["object", "metadata"], {}))`,
		`json.marshal(object.union(input.object.metadata, {"x": 1}))`, `json.marshal({input.object, input.oldObject})`,
	} {
		t.Run(expression, func(t *testing.T) {
			module := `deny contains {"msg": said} if {
	input.operation == "UPDATE"
	said := ` + expression + `
}

every_field := [input.object.metadata.labels, input.object.metadata.annotations, input.destinations, input.peers, input.ports, input.service, input.namespace]
`
			if !strings.Contains(expression, "every_field") {
				module, _, _ = strings.Cut(module, "\n\nevery_field")
			}
			in := full()
			in.OldObject = in.Object
			said := func(change func(*snapshot)) string {
				t.Helper()
				e := engineOf(t, module)
				change(e.current.Load())
				got := e.Evaluate(t.Context(), in)
				if len(got.Violations) != 1 {
					t.Fatalf("got %+v", got)
				}
				return got.Violations[0].Message
			}
			want := said(func(s *snapshot) { s.all[0].whole = true })
			if diff := cmp.Diff(want, said(func(*snapshot) {})); diff != "" {
				t.Errorf("-of the whole input +of the input that is converted bit by bit:\n%s", diff)
			}
		})
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	terms, writer := lru.New(maxTerms), NewWriter()
	in := full()
	for n := range 3 * maxKept {
		changed := *in.Service
		changed.Name = fmt.Sprint(n)
		in.Service, in.Peers = &changed, map[string]decision.Peer{fmt.Sprint(n): {}}
		if _, err := exportOf(t, writer, in, terms).value(true); err != nil {
			t.Fatal(err)
		}
	}
	if writer.kept.Len() > maxKept || terms.Len() > maxTerms {
		t.Errorf("%d fields and %d terms are kept", writer.kept.Len(), terms.Len())
	}
	writer.kept.Clear()
	terms.Clear()
	large := *in.Service
	large.Annotations = map[string]string{"x": strings.Repeat("x", maxObject)}
	in = decision.Input{Object: in.Object, Service: &large}
	exportOf(t, writer, in, terms)
	// The terms are those of the Namespace, the destinations, the peers, and the rest.
	if writer.kept.Len() != 0 || terms.Len() != 4 {
		t.Errorf("a large object is kept: %d texts, %d terms", writer.kept.Len(), terms.Len())
	}
}

// engineOf has one policy.
func engineOf(t *testing.T, rules string) *Engine {
	t.Helper()
	e := New(Options{Timeout: time.Minute})
	for _, result := range e.Load([]Policy{{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "package comity.policies.p\n\n" + rules + "\n"}}}) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	return e
}
