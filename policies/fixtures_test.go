// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// TestRegoTestsBeginWithAWholeInput holds the inputs of Rego tests and the input of
// the engine together: a test whose input lacks a field, or has one that does not
// exist, would test a rule that never holds.
func TestRegoTestsBeginWithAWholeInput(t *testing.T) {
	text := sources(t)
	for _, b := range all(t) {
		t.Run(b.Name(), func(t *testing.T) {
			file := filepath.Join(b.Name(), "policy_test.rego")
			base := evaluate(t, text, file, "base")
			var into any = &decision.Input{}
			if b.Object.Spec.Stage == v1alpha1.StageImport {
				into = &decision.ImportInput{}
			}
			asJSON, err := json.Marshal(base)
			if err != nil {
				t.Fatal(err)
			}
			decoder := json.NewDecoder(bytes.NewReader(asJSON))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(into); err != nil {
				t.Errorf("%s: rule base: %v", file, err)
			}
			if absent := absentFields(base, reflect.TypeOf(into), "input"); len(absent) > 0 {
				t.Errorf("%s: rule base has no %s", file, strings.Join(absent, ", "))
			}
		})
	}
}

// evaluate is the value of a rule of a file of tests, with all modules loaded.
func evaluate(t *testing.T, text map[string][]byte, file, rule string) any {
	t.Helper()
	name := strings.ReplaceAll(filepath.Base(filepath.Dir(file)), "-", "_")
	options := []func(*rego.Rego){rego.Query(fmt.Sprintf("data.comity.policies.%s_test.%s", name, rule))}
	for path, source := range text {
		options = append(options, rego.Module(path, string(source)))
	}
	results, err := rego.New(options...).Eval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 {
		t.Fatalf("%s has no rule %s: expected an input with every field", file, rule)
	}
	return results[0].Expressions[0].Value
}

// absentFields are the paths of the fields that a type of package decision always has
// and the value has not.
func absentFields(value any, t reflect.Type, path string) (absent []string) {
	switch t.Kind() {
	case reflect.Pointer:
		return absentFields(value, t.Elem(), path)
	case reflect.Slice:
		list, _ := value.([]any)
		for i, one := range list {
			absent = append(absent, absentFields(one, t.Elem(), fmt.Sprintf("%s[%d]", path, i))...)
		}
		return absent
	case reflect.Map:
		entries, _ := value.(map[string]any)
		for key, one := range entries {
			absent = append(absent, absentFields(one, t.Elem(), fmt.Sprintf("%s[%s]", path, key))...)
		}
		return absent
	case reflect.Struct:
	default:
		return nil
	}
	if t.PkgPath() != reflect.TypeFor[decision.Input]().PkgPath() {
		return nil
	}
	object, _ := value.(map[string]any)
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		one, has := object[name]
		switch {
		case name == "-":
		case has:
			absent = append(absent, absentFields(one, field.Type, path+"."+name)...)
		case options != "omitempty":
			absent = append(absent, path+"."+name)
		}
	}
	return absent
}

func TestAbsentFieldsKnowsWhatIsMissing(t *testing.T) {
	value := map[string]any{
		"cluster": "a", "apiVersion": "", "object": map[string]any{}, "namespace": nil, "service": nil, "ports": []any{}, "operation": "", "subject": "",
		"published": false, "scope": map[string]any{"all": true}, "namespaceScope": map[string]any{"all": true, "clusters": []any{}},
		"effectiveScope": map[string]any{"all": true, "clusters": []any{}},
		"destinations":   []any{map[string]any{"clusters": []any{}, "namespace": map[string]any{"presence": "absent"}}},
		"peers":          map[string]any{"b": map[string]any{"namespace": map[string]any{"presence": "absent", "labels": map[string]any{}}}},
	}
	want := []string{"input.scope.clusters", "input.destinations[0].namespace.labels", "input.peers[b].labels"}
	if diff := cmp.Diff(want, absentFields(value, reflect.TypeFor[decision.Input](), "input")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
