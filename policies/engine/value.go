// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shape knows how values of one Go type look to a policy: as their JSON, save
// that a nil map is {} and a nil list is [], so that no rule stumbles over null,
// and that managedFields are left out, which are bookkeeping and often most of
// an object. A shape is made once; then a value becomes a term without JSON in
// between, which would take ten times as long.
type shape struct {
	term func(reflect.Value) *ast.Term
	// schema is the JSON schema of those terms, by which `input` is checked. It is
	// in what OPA reads of JSON schema: no null (so a pointer's schema is that of
	// what it points to), and nothing on the values of a map.
	schema map[string]any
}

var (
	timeType     = reflect.TypeFor[metav1.Time]()
	managedType  = reflect.TypeFor[[]metav1.ManagedFieldsEntry]()
	marshaler    = reflect.TypeFor[json.Marshaler]()
	textMarshal  = reflect.TypeFor[encoding.TextMarshaler]()
	bytesType    = reflect.TypeFor[[]byte]()
	stringSchema = map[string]any{"type": "string"}
)

// shapeOf is the shape of a type. It panics on a type that JSON cannot hold,
// which only a change of decision.Input can bring about.
func shapeOf(t reflect.Type) shape {
	switch {
	case t.Kind() == reflect.Pointer:
		return pointerShape(t)
	case t == timeType:
		return shape{term: timeTerm, schema: stringSchema}
	case t == bytesType, t.Implements(marshaler), t.Implements(textMarshal):
		return shape{term: marshaledTerm, schema: map[string]any{}}
	}
	switch t.Kind() {
	case reflect.Struct:
		return structShape(t)
	case reflect.Map:
		return mapShape(t)
	case reflect.Slice:
		return sliceShape(t)
	case reflect.String:
		return shape{
			term:   func(v reflect.Value) *ast.Term { return ast.InternedTerm(v.String()) },
			schema: stringSchema,
		}
	case reflect.Bool:
		return shape{
			term:   func(v reflect.Value) *ast.Term { return ast.InternedTerm(v.Bool()) },
			schema: map[string]any{"type": "boolean"},
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return shape{
			term:   func(v reflect.Value) *ast.Term { return ast.InternedTerm(v.Int()) },
			schema: map[string]any{"type": "integer"},
		}
	default:
		panic(fmt.Sprintf("engine: %s cannot be shown to a policy; expected a struct, map, list, string, bool or integer", t))
	}
}

func pointerShape(t reflect.Type) shape {
	elem := shapeOf(t.Elem())
	return shape{
		schema: elem.schema,
		term: func(v reflect.Value) *ast.Term {
			if v.IsNil() {
				return ast.InternedNullTerm
			}
			return elem.term(v.Elem())
		},
	}
}

func mapShape(t reflect.Type) shape {
	elem := shapeOf(t.Elem())
	return shape{
		schema: map[string]any{"type": "object"},
		term: func(v reflect.Value) *ast.Term {
			if v.Len() == 0 {
				return ast.InternedEmptyObject
			}
			object := ast.NewObjectWithCapacity(v.Len())
			for iter := v.MapRange(); iter.Next(); {
				object.Insert(ast.StringTerm(iter.Key().String()), elem.term(iter.Value()))
			}
			return ast.NewTerm(object)
		},
	}
}

func sliceShape(t reflect.Type) shape {
	elem := shapeOf(t.Elem())
	return shape{
		schema: map[string]any{"type": "array", "items": elem.schema},
		term: func(v reflect.Value) *ast.Term {
			if v.Len() == 0 {
				return ast.InternedEmptyArray
			}
			terms := make([]*ast.Term, v.Len())
			for i := range terms {
				terms[i] = elem.term(v.Index(i))
			}
			return ast.ArrayTerm(terms...)
		},
	}
}

// field is one field of a struct, as encoding/json would write it.
type field struct {
	index []int
	key   *ast.Term
	shape shape
	// absent reports whether the field is left out.
	absent func(reflect.Value) bool
}

func structShape(t reflect.Type) shape {
	properties := map[string]any{}
	fields := structFields(t, nil, properties)
	return shape{
		schema: map[string]any{"type": "object", "properties": properties, "additionalProperties": false},
		term: func(v reflect.Value) *ast.Term {
			object := ast.NewObjectWithCapacity(len(fields))
			for _, f := range fields {
				if value := v.FieldByIndex(f.index); !f.absent(value) {
					object.Insert(f.key, f.shape.term(value))
				}
			}
			return ast.NewTerm(object)
		},
	}
}

// structFields lists the fields of t and, in place of embedded structs without
// a name, theirs; their schemas go into properties.
func structFields(t reflect.Type, prefix []int, properties map[string]any) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		index := slices.Concat(prefix, f.Index)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || f.Type == managedType:
			continue
		case f.Anonymous && name == "":
			fields = append(fields, structFields(f.Type, index, properties)...)
			continue
		case !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		of := shapeOf(f.Type)
		absent := absence(f.Type, options)
		properties[name] = of.schema
		fields = append(fields, field{index: index, key: ast.StringTerm(name), shape: of, absent: absent})
	}
	return fields
}

// absence is when encoding/json leaves a field out.
func absence(t reflect.Type, options string) func(reflect.Value) bool {
	has := func(option string) bool { return slices.Contains(strings.Split(options, ","), option) }
	omitEmpty, omitZero := has("omitempty"), has("omitzero")
	_, ownZero := t.MethodByName("IsZero")
	return func(v reflect.Value) bool {
		if omitZero {
			if zero, ok := v.Interface().(interface{ IsZero() bool }); ownZero && ok && zero.IsZero() {
				return true
			}
			if v.IsZero() {
				return true
			}
		}
		if !omitEmpty {
			return false
		}
		switch v.Kind() {
		case reflect.Map, reflect.Slice, reflect.String:
			return v.Len() == 0
		case reflect.Struct:
			return false
		default:
			return v.IsZero()
		}
	}
}

func timeTerm(v reflect.Value) *ast.Term {
	t, _ := v.Interface().(metav1.Time)
	if t.IsZero() {
		return ast.InternedNullTerm
	}
	return ast.StringTerm(t.UTC().Format(time.RFC3339))
}

// marshaledTerm is for the few types that write their own JSON.
func marshaledTerm(v reflect.Value) *ast.Term {
	text, err := json.Marshal(v.Interface())
	if err != nil {
		panic(fmt.Sprintf("engine: marshal %s: %v", v.Type(), err))
	}
	var plain any
	if err := util.UnmarshalJSON(text, &plain); err != nil {
		panic(fmt.Sprintf("engine: read %s back: %v", v.Type(), err))
	}
	value, err := ast.InterfaceToValue(plain)
	if err != nil {
		panic(fmt.Sprintf("engine: show %s to a policy: %v", v.Type(), err))
	}
	return ast.NewTerm(value)
}
