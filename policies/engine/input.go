// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/policies/decision"
)

// inputValue is in as policies see it: its JSON, save that a nil map is {} and a
// nil list is [], so that no rule meets an unexpected null, and that managedFields
// are left out, which are bookkeeping and often most of an object. What in points
// to is not changed.
func inputValue(in decision.Input) (ast.Value, error) {
	in.Object, in.OldObject = withoutManagedFields(in.Object), withoutManagedFields(in.OldObject)
	in.Service, in.Namespace = withoutManagedFields(in.Service), withoutManagedFields(in.Namespace)
	in.Scope.Clusters, in.NamespaceScope.Clusters = notNil(in.Scope.Clusters), notNil(in.NamespaceScope.Clusters)
	if in.UserInfo != nil {
		in.UserInfo = &decision.UserInfo{Username: in.UserInfo.Username, Groups: notNil(in.UserInfo.Groups)}
	}
	peers := make(map[string]decision.Peer, len(in.Peers))
	maps.Copy(peers, in.Peers)
	for id, peer := range peers {
		if peer.Namespace.Labels == nil {
			peer.Namespace.Labels = map[string]string{}
			peers[id] = peer
		}
	}
	in.Peers = peers
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("write the input as JSON: %w", err)
	}
	value, err := ast.ValueFromReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the input from JSON: %w", err)
	}
	return value, nil
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

func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
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
