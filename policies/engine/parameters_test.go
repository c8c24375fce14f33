// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
)

// limited is a policy whose parameters have a schema.
func limited(schema, params string) engine.Policy {
	return engine.Policy{
		Name:             "limited",
		ParametersSchema: []byte(schema),
		Params:           []byte(params),
		Module: `package comity.policies.limited

deny contains {"msg": sprintf("label %s of %d", [data.comity.params.limited.label, data.comity.params.limited.limit])}
`,
	}
}

const limits = `{"type": "object", "required": ["label"], "properties": {
	"label": {"type": "string", "pattern": "^[a-z]+$", "description": "which label counts"},
	"limit": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
	"mode": {"type": "string", "enum": ["strict", "lenient"]},
	"ratio": {"type": "number"},
	"ports": {"type": "array", "items": {"type": "integer"}},
	"regions": {"type": "object", "additionalProperties": {"type": "string"}},
	"owner": {"type": "object", "properties": {"email": {"type": "string"}, "team": {"type": "string", "default": "none"}}}
}}`

// BAD INPUT: a parameter misspelled or of another type.
func TestParametersThatTheSchemaRefusesSayWhereAndWhatWasExpected(t *testing.T) {
	for name, tc := range map[string]struct{ params, want string }{
		"misspelled": {
			`{"label": "app", "limt": 4}`,
			"spec.parameters.limt: unknown; expected one of label, limit, mode, owner, ports, ratio, regions: did you mean limit?",
		},
		"of another case": {
			`{"label": "app", "Limit": 4}`,
			"spec.parameters.Limit: unknown; expected one of label, limit, mode, owner, ports, ratio, regions: did you mean limit?",
		},
		"like none": {
			`{"label": "app", "somethingElse": 4}`,
			"spec.parameters.somethingElse: unknown; expected one of label, limit, mode, owner, ports, ratio, regions",
		},
		"misspelled below": {
			`{"label": "app", "owner": {"emial": "x"}}`,
			"spec.parameters.owner.emial: unknown; expected one of email, team: did you mean email?",
		},
		"a string for a number": {
			`{"label": "app", "limit": "4"}`, `spec.parameters.limit: "4" is of type string; expected integer`,
		},
		"a fraction for an integer": {
			`{"label": "app", "limit": 4.5}`, "spec.parameters.limit: 4.5 is of type number; expected integer",
		},
		"a number for a string": {`{"label": 4}`, "spec.parameters.label: 4 is of type integer; expected string"},
		"null":                  {`{"label": null}`, "spec.parameters.label: null is of type null; expected string"},
		"an item of a list":     {`{"label": "app", "ports": [80, "http"]}`, `spec.parameters.ports[1]: "http" is of type string; expected integer`},
		"a value of a map":      {`{"label": "app", "regions": {"a": true}}`, "spec.parameters.regions.a: true is of type boolean; expected string"},
		"not set":               {`{}`, "spec.parameters.label: it is not set; expected string"},
		"no parameters at all":  {``, "spec.parameters.label: it is not set; expected string"},
		"too small":             {`{"label": "app", "limit": 0}`, "spec.parameters.limit: 0; expected at least 1"},
		"too large":             {`{"label": "app", "limit": 11}`, "spec.parameters.limit: 11; expected at most 10"},
		"of no number's range":  {`{"label": "app", "ratio": 1e999}`, "spec.parameters.ratio: 1e999 is out of range"},
		"none of the values":    {`{"label": "app", "mode": "strikt"}`, `spec.parameters.mode: "strikt"; expected one of "strict", "lenient": did you mean strict?`},
		"another form":          {`{"label": "App"}`, `spec.parameters.label: "App"; expected a string that matches ^[a-z]+$`},
		"two at once, sorted":   {`{"label": 1, "limit": "x"}`, "spec.parameters.label: 1 is of type integer; expected string\nspec.parameters.limit: \"x\" is of type string; expected integer"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, engine.Options{})
			err := e.Check(limited(limits, tc.params))
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
			// What is stored all the same blocks what it matches, by name.
			if r := e.Load([]engine.Policy{limited(limits, tc.params)}); r[0].Err == nil || r[0].Err.Error() != tc.want {
				t.Errorf("Load: got %v", r[0].Err)
			}
			if v := e.Evaluate(t.Context(), request()); v.Outcome != decision.NotEvaluated || len(v.Failed) != 1 || v.Failed[0] != "limited" {
				t.Errorf("the verdict is %s, because of %v; want NotEvaluated because of limited", v.Outcome, v.Failed)
			}
		})
	}
}

func TestASchemaThatCannotBeReadIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ schema, want string }{
		"a keyword misspelled": {`{"type": "object", "propertis": {}}`, "spec.parametersSchema.propertis: unknown; expected one of additionalProperties, default, description, enum, items, maximum, minimum, pattern, properties, required, type: did you mean properties?"},
		"a type misspelled":    {`{"type": "object", "properties": {"a": {"type": "strnig"}}}`, `spec.parametersSchema.properties.a.type: "strnig"; expected one of object, array, string, integer, number, boolean: did you mean string?`},
		"no type":              {`{"type": "object", "properties": {"a": {}}}`, "spec.parametersSchema.properties.a.type: null; expected one of object, array, string, integer, number, boolean"},
		"no object":            {`{"type": "string"}`, "spec.parametersSchema.type: it is string; expected object: parameters are an object"},
		"a keyword of another type": {
			`{"type": "object", "properties": {"a": {"type": "string", "minimum": 1}}}`,
			"spec.parametersSchema.properties.a.minimum: it is not for type string; expected it with type integer, number",
		},
		"a required name that is none":   {`{"type": "object", "properties": {"label": {"type": "string"}}, "required": ["labl"]}`, `spec.parametersSchema.required: "labl" is none of the properties: did you mean label?`},
		"a default of another type":      {`{"type": "object", "properties": {"a": {"type": "string", "default": 1}}}`, "spec.parametersSchema.properties.a.default: 1 is of type integer; expected string"},
		"an enum of another type":        {`{"type": "object", "properties": {"a": {"type": "string", "enum": ["x", 1]}}}`, "spec.parametersSchema.properties.a.enum[1]: 1 is of type integer; expected string"},
		"a pattern that is none":         {`{"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}`, "spec.parametersSchema.properties.a.pattern: error parsing regexp: missing closing ): `(`; expected a regular expression (RE2)"},
		"a reference, which is not read": {`{"type": "object", "$ref": "https://example.com"}`, "spec.parametersSchema.$ref: unknown; expected one of additionalProperties, default, description, enum, items, maximum, minimum, pattern, properties, required, type"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newEngine(t, engine.Options{}).Check(limited(tc.schema, `{"label": "app"}`)); err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestAPolicyReadsTheDefaultsOfItsSchema(t *testing.T) {
	for name, tc := range map[string]struct{ params, want string }{
		"a default":             {`{"label": "app"}`, "label app of 3"},
		"a value in its place":  {`{"label": "app", "limit": 7}`, "label app of 7"},
		"an empty object below": {`{"label": "app", "owner": {}}`, "label app of 3"},
	} {
		t.Run(name, func(t *testing.T) {
			e := loaded(t, engine.Options{}, limited(limits, tc.params))
			if v := e.Evaluate(t.Context(), request()); len(v.Violations) != 1 || v.Violations[0].Message != tc.want {
				t.Errorf("got %+v; want %q", v, tc.want)
			}
		})
	}
}

// A default of an object gets those of its own properties, which modules may rely on.
func TestADefaultGetsTheDefaultsBelowIt(t *testing.T) {
	policy := limited(`{"type": "object", "properties": {
		"label": {"type": "string", "default": "app"}, "limit": {"type": "integer", "default": 1},
		"owner": {"type": "object", "default": {}, "properties": {"team": {"type": "string", "default": "none"}}}
	}}`, "")
	policy.Module = strings.Replace(policy.Module, "deny contains", `deny contains {"msg": data.comity.params.limited.owner.team}

deny contains`, 1)
	e := loaded(t, engine.Options{}, policy)
	v := e.Evaluate(t.Context(), request())
	if len(v.Violations) != 2 || v.Violations[1].Message != "none" {
		t.Errorf("got %+v", v)
	}
}

func TestAnotherSchemaIsAnotherPolicy(t *testing.T) {
	e := newEngine(t, engine.Options{})
	a := e.Load([]engine.Policy{limited(limits, `{"label": "app"}`)})
	b := e.Load([]engine.Policy{limited(strings.Replace(limits, `"default": 3`, `"default": 4`, 1), `{"label": "app"}`)})
	if a[0].Digest == b[0].Digest {
		t.Errorf("both have digest %s", a[0].Digest)
	}
	if v := e.Evaluate(t.Context(), request()); v.Violations[0].Message != "label app of 4" {
		t.Errorf("got %+v", v.Violations)
	}
}
