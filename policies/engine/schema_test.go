// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// anyJSON is a JSON value with keys and strings that schemas are made of.
func anyJSON(t *rapid.T, depth int) any {
	words := []string{"type", "object", "array", "string", "integer", "number", "boolean", "properties", "additionalProperties",
		"required", "items", "enum", "minimum", "maximum", "pattern", "default", "description", "a", "b", "(", ""}
	kinds := 5
	if depth == 0 {
		kinds = 3
	}
	switch rapid.IntRange(0, kinds).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom(words).Draw(t, "text")
	case 1:
		return json.Number(rapid.SampledFrom([]string{"0", "-1", "7", "1.5", "1e999", "123456789012345678901234567890"}).Draw(t, "number"))
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return nil
	case 4:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, anyJSON(t, depth-1))
		}
		return list
	default:
		object := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "size") {
			object[rapid.SampledFrom(words).Draw(t, "key")] = anyJSON(t, depth-1)
		}
		return object
	}
}

// goodSchema is a schema that can be read, of a value of some depth.
func goodSchema(t *rapid.T, depth int) map[string]any {
	types := []string{"string", "integer", "number", "boolean"}
	if depth > 0 {
		types = append(types, "object", "object", "array")
	}
	s := map[string]any{"type": rapid.SampledFrom(types).Draw(t, "type")}
	switch s["type"] {
	case "object":
		properties := map[string]any{}
		for _, name := range []string{"a", "b"} {
			if rapid.Bool().Draw(t, name) {
				properties[name] = goodSchema(t, depth-1)
			}
		}
		s["properties"] = properties
		if rapid.Bool().Draw(t, "default") {
			s["default"] = map[string]any{}
		}
	case "array":
		s["items"] = goodSchema(t, depth-1)
	case "integer":
		if rapid.Bool().Draw(t, "default") {
			s["default"] = 5
		}
	}
	return s
}

// parameters are those of a policy, with the defaults of its schema.
func parameters(text, schema []byte) (map[string]any, error) {
	v := &version{Policy: Policy{ExportPolicySpec: v1alpha1.ExportPolicySpec{
		Parameters: &apiextensionsv1.JSON{Raw: text}, ParametersSchema: &apiextensionsv1.JSON{Raw: schema},
	}}}
	err := v.readParams()
	return v.params, err
}

// Whatever an author writes, there is an error or parameters, and no panic.
func TestAnySchemaAndParametersHaveAnAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema, err := json.Marshal(anyJSON(t, 4))
		if err != nil {
			t.Fatal(err)
		}
		params, err := json.Marshal(anyJSON(t, 3))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parameters(params, schema); err != nil && err.Error() == "" {
			t.Fatalf("an error without a message for %s and %s", schema, params)
		}
	})
}

// What was accepted is accepted again with its defaults, which nothing more is added to.
func TestParametersWithTheirDefaultsAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := goodSchema(t, 3)
		schema["type"] = "object"
		delete(schema, "items")
		delete(schema, "default")
		schemaText, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(map[string]any{"a": anyJSON(t, 2)})
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "none") {
			text = nil
		}
		first, err := parameters(text, schemaText)
		if err != nil {
			return
		}
		again, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		second, err := parameters(again, schemaText)
		if err != nil {
			t.Fatalf("%s with its defaults is refused: %v", again, err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
	})
}
