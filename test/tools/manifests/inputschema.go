// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/policies"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// inputs are the types of input, by the stage of a policy.
var inputs = map[v1alpha1.Stage]reflect.Type{
	v1alpha1.StageExport: reflect.TypeFor[decision.Input](),
	v1alpha1.StageImport: reflect.TypeFor[decision.ImportInput](),
}

// addInputSchemas adds the JSON Schemas of the inputs.
func addInputSchemas(files map[string]string) error {
	for stage, input := range inputs {
		schema := schemaOf(input)
		schema["$schema"] = "http://json-schema.org/draft-07/schema#"
		schema["title"] = "Input of a policy of Comity with stage " + string(stage)
		schema["description"] = "See policies/INPUT.md."
		text, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			return fmt.Errorf("write the schema of %s: %w", input, err)
		}
		files["policies/"+policies.InputSchemaFile(string(stage))] = string(text) + "\n"
	}
	return nil
}

var (
	timeType    = reflect.TypeFor[metav1.Time]()
	managedType = reflect.TypeFor[[]metav1.ManagedFieldsEntry]()
	marshaler   = reflect.TypeFor[json.Marshaler]()
	textMarshal = reflect.TypeFor[encoding.TextMarshaler]()
	bytesType   = reflect.TypeFor[[]byte]()
)

// schemaOf is the JSON Schema of a type as the engine writes it for a policy. It panics on a
// type that JSON cannot hold, which only a change of decision.Input can bring about.
func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem())
	case t == timeType:
		return map[string]any{"type": []any{"string", "null"}}
	case t == bytesType, t.Implements(marshaler), t.Implements(textMarshal):
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Struct:
		schema := map[string]any{"type": "object", "additionalProperties": false}
		properties, required := map[string]any{}, []string{}
		addProperties(t, properties, &required)
		schema["properties"] = properties
		if len(required) > 0 {
			slices.Sort(required)
			schema["required"] = required
		}
		return schema
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	default:
		panic(fmt.Sprintf("%s cannot be shown to a policy; expected a struct, map, list, string, bool or integer", t))
	}
}

// addProperties adds the fields of a struct as encoding/json names them, those of
// embedded structs without a name among them. Those that the inputs of policies always have
// are required; a pointer among them may be null.
func addProperties(t reflect.Type, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || f.Type == managedType:
		case f.Anonymous && name == "":
			addProperties(f.Type, properties, required)
		case !f.IsExported():
		case name == "":
			properties[f.Name] = schemaOf(f.Type)
		default:
			schema := schemaOf(f.Type)
			properties[name] = schema
			if t.PkgPath() != inputs[v1alpha1.StageExport].PkgPath() || options != "" {
				continue // Kubernetes documents what is always in its objects
			}
			*required = append(*required, name)
			if f.Type.Kind() == reflect.Pointer {
				schema["type"] = []any{schema["type"], "null"}
			}
		}
	}
}
