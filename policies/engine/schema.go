// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/open-policy-agent/opa/v1/util"
)

// schemaField is where the schema of the parameters is; the errors of this file begin
// with a path below it.
const schemaField = "spec.parametersSchema"

// The types of a schema.
const (
	typeObject  = "object"
	typeArray   = "array"
	typeString  = "string"
	typeInteger = "integer"
	typeNumber  = "number"
	typeBoolean = "boolean"
)

// schema is one node of spec.parametersSchema: the part of JSON schema that INPUT.md
// describes. It is closed: a property that it does not name is refused.
//
// The packages of the API server that read such schemas are not used: they bring CEL
// and the server's feature gates with them, panic on a pattern that does not compile,
// and their messages neither name the type that was given nor suggest a name.
type schema struct {
	typ        string
	properties map[string]*schema
	additional *schema // of the properties that are not named; nil refuses them
	items      *schema // nil allows any
	required   []string
	enum       []any
	minimum    json.Number // empty for none
	maximum    json.Number
	pattern    *regexp.Regexp
	// preset is the default; nil for none.
	preset any
}

// keywords are those of a schema, with the types that each is for; none for all.
var keywords = map[string][]string{
	"type":                 nil,
	"description":          nil,
	"default":              nil,
	"enum":                 {typeString, typeInteger, typeNumber, typeBoolean},
	"properties":           {typeObject},
	"additionalProperties": {typeObject},
	"required":             {typeObject},
	"items":                {typeArray},
	"minimum":              {typeInteger, typeNumber},
	"maximum":              {typeInteger, typeNumber},
	"pattern":              {typeString},
}

var schemaTypes = []string{typeObject, typeArray, typeString, typeInteger, typeNumber, typeBoolean}

// parseSchema reads the text of spec.parametersSchema; nil for none.
func parseSchema(text []byte) (*schema, error) {
	if isNothing(text) {
		return nil, nil //nolint:nilnil // Absence of a schema is an answer.
	}
	var content any
	if err := util.UnmarshalJSON(text, &content); err != nil {
		return nil, fmt.Errorf("%s: %w; expected a JSON schema", schemaField, err)
	}
	s, err := readSchema(schemaField, content)
	if err != nil {
		return nil, err
	}
	if s.typ != typeObject {
		return nil, fmt.Errorf("%s.type: it is %s; expected object: parameters are an object", schemaField, s.typ)
	}
	return s, nil
}

// readSchema reads the schema at a path.
func readSchema(path string, content any) (*schema, error) {
	given, is := content.(map[string]any)
	if !is {
		return nil, mismatch(path, content, "a schema, such as {type: string}")
	}
	s := &schema{}
	if s.typ, is = given["type"].(string); !is || !slices.Contains(schemaTypes, s.typ) {
		return nil, fmt.Errorf("%s.type: %s; expected one of %s%s", path, display(given["type"]), strings.Join(schemaTypes, ", "), suggestion(s.typ, schemaTypes))
	}
	for _, keyword := range slices.Sorted(maps.Keys(given)) {
		types, known := keywords[keyword]
		at := path + "." + keyword
		switch {
		case !known:
			all := slices.Sorted(maps.Keys(keywords))
			return nil, fmt.Errorf("%s: unknown; expected one of %s%s", at, strings.Join(all, ", "), suggestion(keyword, all))
		case types != nil && !slices.Contains(types, s.typ):
			return nil, fmt.Errorf("%s: it is not for type %s; expected it with type %s", at, s.typ, strings.Join(types, ", "))
		}
		if err := s.read(keyword, at, given[keyword]); err != nil {
			return nil, err
		}
	}
	return s, s.check(path)
}

// read reads the value of one keyword.
func (s *schema) read(keyword, at string, value any) (err error) {
	switch keyword {
	case "properties":
		return s.readProperties(at, value)
	case "additionalProperties":
		s.additional, err = readSchema(at, value)
	case "items":
		s.items, err = readSchema(at, value)
	case "required":
		s.required, err = texts(at, value)
	case "enum":
		list, is := value.([]any)
		if !is || len(list) == 0 {
			return mismatch(at, value, "a list of values")
		}
		s.enum = list
	case "minimum":
		s.minimum, err = number(at, value)
	case "maximum":
		s.maximum, err = number(at, value)
	case "pattern":
		text, is := value.(string)
		if !is {
			return mismatch(at, value, "a regular expression")
		}
		if s.pattern, err = regexp.Compile(text); err != nil {
			return fmt.Errorf("%s: %w; expected a regular expression (RE2)", at, err)
		}
	case "default":
		s.preset = value
	}
	return err
}

func (s *schema) readProperties(at string, value any) error {
	given, is := value.(map[string]any)
	if !is {
		return mismatch(at, value, "an object of schemas")
	}
	s.properties = map[string]*schema{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		property, err := readSchema(at+"."+name, given[name])
		if err != nil {
			return err
		}
		s.properties[name] = property
	}
	return nil
}

// check refuses a schema that contradicts itself.
func (s *schema) check(path string) error {
	for _, name := range s.required {
		if s.properties[name] == nil {
			return fmt.Errorf("%s.required: %q is none of the properties%s", path, name, suggestion(name, slices.Sorted(maps.Keys(s.properties))))
		}
	}
	for i, value := range s.enum {
		if typeOf(value) != s.typ && (s.typ != typeNumber || typeOf(value) != typeInteger) {
			return mismatch(fmt.Sprintf("%s.enum[%d]", path, i), value, s.typ)
		}
	}
	if s.preset == nil {
		return nil
	}
	_, errs := s.apply(path+".default", copied(s.preset))
	return cmp.Or(errs...)
}

func texts(at string, value any) (out []string, err error) {
	list, is := value.([]any)
	for _, item := range list {
		text, isText := item.(string)
		is = is && isText
		out = append(out, text)
	}
	if !is {
		return nil, mismatch(at, value, "a list of names")
	}
	return out, nil
}

func number(at string, value any) (json.Number, error) {
	n, is := value.(json.Number)
	if !is {
		return "", mismatch(at, value, typeNumber)
	}
	if _, err := n.Float64(); err != nil {
		return "", fmt.Errorf("%s: %s is out of range", at, n)
	}
	return n, nil
}

// isNothing reports whether a JSON text is missing.
func isNothing(text []byte) bool {
	trimmed := strings.TrimSpace(string(text))
	return trimmed == "" || trimmed == "null"
}

// mismatch is the error of a value of another type.
func mismatch(path string, value any, expected string) error {
	return fmt.Errorf("%s: %s is of type %s; expected %s", path, display(value), typeOf(value), expected)
}

// typeOf is the type of a JSON value that OPA decoded, in the words of a schema.
func typeOf(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case map[string]any:
		return typeObject
	case []any:
		return typeArray
	case string:
		return typeString
	case bool:
		return typeBoolean
	case json.Number:
		if _, err := value.Int64(); err == nil {
			return typeInteger
		}
		return typeNumber
	default:
		return fmt.Sprintf("%T", value)
	}
}

// maxShown is how much of a value an error shows, in characters.
const maxShown = 60

// display is a JSON value in an error.
func display(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "the value"
	}
	if all := []rune(string(text)); len(all) > maxShown {
		return string(all[:maxShown]) + "..."
	}
	return string(text)
}

// suggestion is ": did you mean <name>?", if one of the names is close.
func suggestion(given string, names []string) string {
	best, distance := "", 1+len(given)/3 // a third of the characters may be wrong
	for _, name := range names {
		if d := levenshtein.ComputeDistance(strings.ToLower(given), strings.ToLower(name)); d < distance || d == distance && best == "" {
			best, distance = name, d
		}
	}
	if best == "" || given == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %s?", best)
}
