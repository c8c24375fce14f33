// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/util"
)

// parametersField is where parameters are, as errors write it.
const parametersField = "spec.parameters"

// parameters are spec.parameters with the defaults of the schema. Without a schema
// any object is accepted. An error names each field that is wrong, one a line.
func parameters(text, schemaText []byte) (map[string]any, error) {
	params := map[string]any{}
	if !isNothing(text) {
		// OPA's decoder keeps numbers as they are written.
		if err := util.UnmarshalJSON(text, &params); err != nil {
			return nil, fmt.Errorf("%s: %w; expected an object", parametersField, err)
		}
	}
	s, err := parseSchema(schemaText)
	if err != nil || s == nil {
		return params, err
	}
	_, errs := s.apply(parametersField, params)
	if len(errs) > maxErrors {
		errs = append(errs[:maxErrors], fmt.Errorf("and %d more", len(errs)-maxErrors))
	}
	return params, errors.Join(errs...)
}

// apply checks the value at a path and adds the defaults to it. It returns the value,
// and what is wrong with it, sorted by path.
func (s *schema) apply(path string, value any) (any, []error) {
	if given := typeOf(value); given != s.typ && (given != typeInteger || s.typ != typeNumber) {
		return value, []error{mismatch(path, value, s.typ)}
	}
	switch value := value.(type) {
	case map[string]any:
		return value, s.applyObject(path, value)
	case []any:
		var errs []error
		for i := range value {
			if s.items != nil {
				item, wrong := s.items.apply(fmt.Sprintf("%s[%d]", path, i), value[i])
				value[i], errs = item, append(errs, wrong...)
			}
		}
		return value, errs
	default:
		if err := s.checkScalar(path, value); err != nil {
			return value, []error{err}
		}
		return value, nil
	}
}

func (s *schema) applyObject(path string, object map[string]any) (errs []error) {
	for name, property := range s.properties {
		if _, has := object[name]; !has && property.preset != nil {
			object[name] = copied(property.preset)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		property := s.properties[name]
		if property == nil {
			property = s.additional
		}
		if property == nil {
			errs = append(errs, s.unknown(path, name))
			continue
		}
		value, wrong := property.apply(path+"."+name, object[name])
		object[name], errs = value, append(errs, wrong...)
	}
	for _, name := range s.required {
		if _, has := object[name]; !has {
			errs = append(errs, fmt.Errorf("%s.%s: it is not set; expected %s", path, name, s.properties[name].typ))
		}
	}
	return errs
}

func (s *schema) unknown(path, name string) error {
	names := slices.Sorted(maps.Keys(s.properties))
	if len(names) == 0 {
		return fmt.Errorf("%s.%s: unknown; expected no property: %s names none", path, name, schemaField)
	}
	return fmt.Errorf("%s.%s: unknown; expected one of %s%s", path, name, strings.Join(names, ", "), suggestion(name, names))
}

// checkScalar checks a value of the right type.
func (s *schema) checkScalar(path string, value any) error {
	if s.enum != nil && !slices.ContainsFunc(s.enum, func(one any) bool { return reflect.DeepEqual(one, value) }) {
		text, _ := value.(string)
		return fmt.Errorf("%s: %s; expected one of %s%s", path, display(value), list(s.enum), suggestion(text, strs(s.enum)))
	}
	switch value := value.(type) {
	case string:
		if s.pattern != nil && !s.pattern.MatchString(value) {
			return fmt.Errorf("%s: %s; expected a string that matches %s", path, display(value), s.pattern)
		}
	case json.Number:
		n, err := value.Float64()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %s is out of range", path, value)
		case s.minimum != "" && n < float(s.minimum):
			return fmt.Errorf("%s: %s; expected at least %s", path, value, s.minimum)
		case s.maximum != "" && n > float(s.maximum):
			return fmt.Errorf("%s: %s; expected at most %s", path, value, s.maximum)
		}
	}
	return nil
}

// float is a number that was read before.
func float(n json.Number) float64 {
	f, _ := n.Float64()
	return f
}

// copied is a copy of a default: what is below it may get defaults, and policies
// must not share it.
func copied(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for k, v := range value {
			out[k] = copied(v)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, v := range value {
			out[i] = copied(v)
		}
		return out
	default:
		return value
	}
}

func list(values []any) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = display(v)
	}
	return strings.Join(out, ", ")
}

// strs are the strings among values.
func strs(values []any) (out []string) {
	for _, v := range values {
		if text, is := v.(string); is {
			out = append(out, text)
		}
	}
	return out
}
