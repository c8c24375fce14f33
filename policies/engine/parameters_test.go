// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// limited is a policy whose parameters have a schema.
func limited(schema, params string) engine.Policy {
	return engine.Policy{Name: "limited", ExportPolicySpec: v1alpha1.ExportPolicySpec{
		ParametersSchema: &apiextensionsv1.JSON{Raw: []byte(schema)},
		Parameters:       &apiextensionsv1.JSON{Raw: []byte(params)},
		Rego: `package comity.policies.limited

deny contains {"msg": sprintf("label %s of %d", [data.comity.params.limited.label, data.comity.params.limited.limit])}
`,
	}}
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
			"spec.parameters.limt: unknown; expected one of email, label, limit, mode, owner, ports, ratio, regions, team",
		},
		"of another case": {
			`{"label": "app", "Limit": 4}`,
			"spec.parameters.Limit: unknown; expected one of email, label, limit, mode, owner, ports, ratio, regions, team",
		},
		"like none": {
			`{"label": "app", "somethingElse": 4}`,
			"spec.parameters.somethingElse: unknown; expected one of email, label, limit, mode, owner, ports, ratio, regions, team",
		},
		"misspelled below": {
			`{"label": "app", "owner": {"emial": "x"}}`,
			"spec.parameters.owner.emial: unknown; expected one of email, label, limit, mode, owner, ports, ratio, regions, team",
		},
		"a string for a number": {
			`{"label": "app", "limit": "4"}`, `spec.parameters.limit in body must be of type integer: "string"`,
		},
		"a fraction for an integer": {
			`{"label": "app", "limit": 4.5}`, "Checked value must be of type integer (default format) in spec.parameters.limit\nspec.parameters.limit in body must be of type integer: \"number\"",
		},
		"a number for a string": {`{"label": 4}`, `spec.parameters.label in body must be of type string: "integer"`},
		"null":                  {`{"label": null}`, `spec.parameters.label in body must be of type string: "null"`},
		"an item of a list":     {`{"label": "app", "ports": [80, "http"]}`, `spec.parameters.ports[1] in body must be of type integer: "string"`},
		"a value of a map":      {`{"label": "app", "regions": {"a": true}}`, `spec.parameters.regions.a in body must be of type string: "boolean"`},
		"not set":               {`{}`, "spec.parameters.label in body is required"},
		"no parameters at all":  {``, "spec.parameters.label in body is required"},
		"too small":             {`{"label": "app", "limit": 0}`, "spec.parameters.limit in body should be greater than or equal to 1"},
		"too large":             {`{"label": "app", "limit": 11}`, "spec.parameters.limit in body should be less than or equal to 10"},
		"of no number's range":  {`{"label": "app", "ratio": 1e999}`, "spec.parameters: json: cannot unmarshal number 1e999 into Go value of type float64; expected an object"},
		"none of the values":    {`{"label": "app", "mode": "strikt"}`, "spec.parameters.mode in body should be one of [strict lenient]"},
		"another form":          {`{"label": "App"}`, "spec.parameters.label in body should match '^[a-z]+$'"},
		"two at once, sorted":   {`{"label": 1, "limit": "x"}`, "spec.parameters.label in body must be of type string: \"integer\"\nspec.parameters.limit in body must be of type integer: \"string\""},
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
		"a keyword misspelled": {`{"type": "object", "propertis": {}}`, `spec.parametersSchema: unknown field "propertis"; expected a schema as in a CustomResourceDefinition`},
		"a type misspelled":    {`{"type": "object", "properties": {"a": {"type": "strnig"}}}`, "spec.parameters.label: unknown; expected one of a"},
		"no type":              {`{"type": "object", "properties": {"a": {}}}`, "spec.parametersSchema.properties[a].type: Required value: must not be empty for specified object fields"},
		"no object":            {`{"type": "string"}`, `spec.parametersSchema.type: it is "string"; expected object: parameters are an object`},
		"a keyword of another type": {
			`{"type": "object", "properties": {"a": {"type": "string", "minimum": 1}}}`,
			"spec.parameters.label: unknown; expected one of a",
		},
		"a required name that is none":   {`{"type": "object", "properties": {"label": {"type": "string"}}, "required": ["labl"]}`, "spec.parameters.labl in body is required"},
		"a default of another type":      {`{"type": "object", "properties": {"a": {"type": "string", "default": 1}}}`, "spec.parameters.a in body must be of type string: \"integer\"\nspec.parameters.label: unknown; expected one of a"},
		"an enum of another type":        {`{"type": "object", "properties": {"a": {"type": "string", "enum": ["x", 1]}}}`, "spec.parameters.label: unknown; expected one of a"},
		"a pattern that is none":         {`{"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}`, "spec.parametersSchema.properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"},
		"a reference, which is not read": {`{"type": "object", "$ref": "https://example.com"}`, "spec.parametersSchema: OpenAPIV3Schema '$ref' is not supported"},
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
	policy.Rego = strings.Replace(policy.Rego, "deny contains", `deny contains {"msg": data.comity.params.limited.owner.team}

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
