// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
)

// inputValue is in as policies see it: its JSON, save that a nil map is {} and a
// nil list is [], so that no rule meets an unexpected null, and that managedFields
// are left out, which are bookkeeping and often most of an object. What in points
// to is not changed.
func inputValue(in decision.Input) (ast.Value, error) {
	fields, err := (*termCache)(nil).fields(in)
	if err != nil {
		return nil, err
	}
	return ast.InterfaceToValue(fields)
}

// inputFor is inputValue for the policies of a snapshot. Policies read few fields, so
// only those are converted, when they are read, unless a policy does with the input
// what needs all of it.
func (c *termCache) inputFor(snap *snapshot, in decision.Input) (ast.Value, error) {
	fields, err := c.fields(in)
	if err != nil {
		return nil, err
	}
	if snap.whole {
		return ast.InterfaceToValue(fields)
	}
	return ast.LazyObject(fields), nil
}

// fields are the fields of the input: terms, or values that become terms by their
// JSON. What belongs to the request is converted for each request. Service, Namespace,
// destinations and peers usually are those of an earlier one, and their terms are
// kept: they are most of the input, and grow with the number of clusters.
func (c *termCache) fields(in decision.Input) (map[string]any, error) {
	object, err := exportFields(in.Object)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{
		"apiVersion": in.APIVersion, "operation": string(in.Operation), "subject": string(in.Subject), "object": object,
		"published": in.Published, "ports": notNil(in.Ports), "cluster": in.Cluster,
		"scope": scopeValue(in.Scope), "namespaceScope": scopeValue(in.NamespaceScope), "effectiveScope": scopeValue(in.EffectiveScope),
	}
	if in.UserInfo != nil {
		fields["userInfo"] = &decision.UserInfo{Username: in.UserInfo.Username, Groups: notNil(in.UserInfo.Groups)}
	}
	if in.OldObject != nil {
		if fields["oldObject"], err = exportFields(in.OldObject); err != nil {
			return nil, err
		}
	}
	kept := func(name string, value ast.Value, problem error) {
		fields[name], err = value, cmp.Or(err, problem)
	}
	service, problem := storedObject(c, withoutManagedFields(in.Service))
	kept("service", service, problem)
	namespace, problem := storedObject(c, withoutManagedFields(in.Namespace))
	kept("namespace", namespace, problem)
	destinations, problem := c.destinations(in.Destinations)
	kept("destinations", destinations, problem)
	peers, problem := c.peers(in.Peers)
	kept("peers", peers, problem)
	return fields, err
}

// everywhere is the scope that nothing narrows, which most exports have.
var everywhere = ast.MustInterfaceToValue(decision.Scope{All: true, Clusters: []string{}})

func scopeValue(scope decision.Scope) any {
	if scope.All && len(scope.Clusters) == 0 && scope.Problem == "" {
		return everywhere
	}
	scope.Clusters = notNil(scope.Clusters)
	return scope
}

// exportFields are the fields of the export, its metadata and its spec by their names in
// JSON; nil for nil.
func exportFields(export *mcsv1beta1.ServiceExport) (any, error) {
	if export == nil {
		return nil, nil
	}
	fields, err := exportShape.fields(reflect.ValueOf(export).Elem())
	if err != nil {
		return nil, err
	}
	if fields["metadata"], err = metadataShape.fields(reflect.ValueOf(&export.ObjectMeta).Elem()); err != nil {
		return nil, err
	}
	fields["spec"], err = specShape.fields(reflect.ValueOf(&export.Spec).Elem())
	return fields, err
}

// shape is how encoding/json names the fields of a struct.
type shape []shapeField

type shapeField struct {
	name                string
	index               []int
	omitEmpty, omitZero bool
	zero                any // of a struct: what becomes of its zero value; never changed
}

var (
	exportShape   = shapeOf(reflect.TypeFor[mcsv1beta1.ServiceExport]())
	metadataShape = shapeOf(reflect.TypeFor[metav1.ObjectMeta]())
	specShape     = shapeOf(reflect.TypeFor[mcsv1beta1.ServiceExportSpec]())
)

func shapeOf(t reflect.Type) (s shape) {
	for _, f := range reflect.VisibleFields(t) {
		parts := strings.Split(f.Tag.Get("json"), ",")
		switch {
		case parts[0] == "", len(f.Index) > 1 && f.Index[0] != 0: // an embedded struct; what is in metadata
		case f.Type == managedType, f.Type == reflect.TypeFor[metav1.ObjectMeta](), f.Type == reflect.TypeFor[mcsv1beta1.ServiceExportSpec]():
		default:
			zero, _ := plain(reflect.New(f.Type).Interface())
			s = append(s, shapeField{name: parts[0], index: f.Index, omitEmpty: slices.Contains(parts, "omitempty"), omitZero: slices.Contains(parts, "omitzero"), zero: zero})
		}
	}
	return s
}

// fields are those of the struct that its JSON has. Those values are converted that
// encoding/json would write in another order than as objects.
func (s shape) fields(of reflect.Value) (map[string]any, error) {
	fields := make(map[string]any, len(s))
	for _, f := range s {
		value := of.FieldByIndex(f.index)
		if f.omitEmpty && isEmpty(value) {
			continue
		}
		if zero, can := value.Addr().Interface().(interface{ IsZero() bool }); f.omitZero && can && zero.IsZero() {
			continue
		}
		switch value.Kind() {
		case reflect.String:
			fields[f.name] = value.String()
		case reflect.Int64:
			fields[f.name] = value.Int()
		case reflect.Map:
			fields[f.name] = value.Interface()
		default:
			if value.IsZero() && value.Kind() == reflect.Struct {
				fields[f.name] = f.zero
				continue
			}
			if simple, is := value.Addr().Interface().(interface{ ToUnstructured() any }); is {
				fields[f.name] = simple.ToUnstructured()
				continue
			}
			converted, err := plain(value.Addr().Interface())
			if err != nil {
				return nil, err
			}
			fields[f.name] = converted
		}
	}
	return fields, nil
}

// isEmpty reports whether encoding/json omits a value with omitempty.
func isEmpty(value reflect.Value) bool {
	switch value.Kind() {
	case reflect.Map, reflect.Slice, reflect.String:
		return value.Len() == 0
	case reflect.Struct:
		return false
	default:
		return value.IsZero()
	}
}

// valueOf is the JSON of x as a term.
func valueOf[T any](x T) (ast.Value, error) {
	fields, err := plain(x)
	if err != nil {
		return nil, err
	}
	return ast.InterfaceToValue(fields)
}

// plain is x as encoding/json would read its JSON.
func plain[T any](x T) (any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&struct {
		Value T `json:"value"`
	}{x})
	if err != nil {
		return nil, fmt.Errorf("write the input: %w", err)
	}
	return fields["value"], nil
}

// needsWhole reports whether rules, which were compiled, do with input as a whole what
// an input that is converted bit by bit does not support: give it to another rule or
// to a builtin, which may write it as JSON, or replace a part of it by `with`. Only
// object.get, which reads one field, is known to do neither.
func needsWhole(rules []*ast.Rule) bool {
	for _, rule := range rules {
		// The compiler writes object.get(input, path, value) as two expressions:
		// local = input; object.get(local, path, value).
		bare, replaced := 0, false
		locals, expected := map[ast.Var]int{}, map[ast.Var]int{}
		ast.WalkExprs(rule, func(expr *ast.Expr) bool {
			replaced = replaced || len(expr.With) > 0
			if expr.IsEquality() && isInput(expr.Operand(1)) {
				if local, is := expr.Operand(0).Value.(ast.Var); is {
					expected[local]++
					bare--
				}
			}
			if expr.IsCall() && expr.Operator().Equal(ast.ObjectGet.Ref()) {
				if local, is := expr.Operand(0).Value.(ast.Var); is {
					locals[local]++
				}
			}
			return false
		})
		ast.WalkTerms(rule, func(term *ast.Term) bool {
			if isInput(term) {
				bare++
			}
			return false
		})
		ast.WalkVars(rule, func(v ast.Var) bool {
			if _, is := expected[v]; is {
				expected[v]--
			}
			return false
		})
		for local, left := range expected { // negative for what reads it
			bare += -left - locals[local]
		}
		if replaced || bare != 0 {
			return true
		}
	}
	return false
}

func isInput(term *ast.Term) bool {
	ref, is := term.Value.(ast.Ref)
	return is && len(ref) == 1 && ref.HasPrefix(ast.InputRootRef)
}

func withoutManagedFields[T any, P interface {
	*T
	metav1.Object
}](object P) P {
	if object == nil || len(object.GetManagedFields()) == 0 {
		return object
	}
	shallow := *object
	P(&shallow).SetManagedFields(nil)
	return &shallow
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func notNilMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

var (
	timeType    = reflect.TypeFor[metav1.Time]()
	managedType = reflect.TypeFor[[]metav1.ManagedFieldsEntry]()
	marshaler   = reflect.TypeFor[json.Marshaler]()
	textMarshal = reflect.TypeFor[encoding.TextMarshaler]()
	bytesType   = reflect.TypeFor[[]byte]()
)

// schemaOf is the JSON schema of a type as inputValue writes it, by which uses of
// `input` are checked when a policy is compiled. It is in what OPA reads of JSON
// schema: no null (so a pointer's schema is that of what it points to), and
// nothing on the values of a map. It panics on a type that JSON cannot hold, which
// only a change of decision.Input can bring about.
func schemaOf(t reflect.Type) map[string]any {
	switch {
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem())
	case t == timeType:
		return map[string]any{"type": "string"}
	case t == bytesType, t.Implements(marshaler), t.Implements(textMarshal):
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Struct:
		properties := map[string]any{}
		addProperties(t, properties)
		return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	case reflect.Map:
		return map[string]any{"type": "object"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	default:
		panic(fmt.Sprintf("engine: %s cannot be shown to a policy; expected a struct, map, list, string, bool or integer", t))
	}
}

// addProperties adds the fields of a struct as encoding/json names them, those of
// embedded structs without a name among them.
func addProperties(t reflect.Type, properties map[string]any) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || f.Type == managedType:
		case f.Anonymous && name == "":
			addProperties(f.Type, properties)
		case !f.IsExported():
		case name == "":
			properties[f.Name] = schemaOf(f.Type)
		default:
			properties[name] = schemaOf(f.Type)
		}
	}
}
