// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/json"
)

// Where parameters and their schema are, as errors write it.
const parametersField = "spec.parameters"

var schemaField = field.NewPath("spec", "parametersSchema")

// readParams reads spec.parameters, with the defaults of the schema. Without a schema
// any object is accepted. An error names each field that is wrong, one a line.
func (v *version) readParams() (err error) {
	v.params = map[string]any{}
	if !isNothing(v.Parameters) {
		if err := json.UnmarshalCaseSensitivePreserveInts(v.Parameters.Raw, &v.params); err != nil {
			return fmt.Errorf("%s: %w; expected an object", parametersField, err)
		}
	}
	if isNothing(v.ParametersSchema) {
		return nil
	}
	if v.schema, err = parseSchema(v.ParametersSchema.Raw); err != nil {
		return err
	}
	defaulting.Default(v.params, v.schema)
	var errs []error
	names := sets.New[string]()
	(&schema.Visitor{Structural: func(below *schema.Structural) bool {
		names = names.Union(sets.KeySet(below.Properties))
		return false
	}}).Visit(v.schema)
	for _, path := range pruning.PruneWithOptions(v.params, v.schema, false, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, fmt.Errorf("%s.%s: unknown; expected one of %s", parametersField, path, strings.Join(sets.List(names), ", ")))
	}
	// Without the formats that Kubernetes knows: a schema of parameters needs none.
	result := validate.NewSchemaValidator(v.schema.ToKubeOpenAPI(), nil, parametersField, strfmt.NewFormats()).Validate(v.params)
	errs = append(errs, result.Errors...)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return joined(errs)
}

// parseSchema reads a structural schema, as that of a CustomResourceDefinition.
func parseSchema(text []byte) (*schema.Structural, error) {
	var given apiextensionsv1.JSONSchemaProps
	unknown, err := json.UnmarshalStrict(text, &given)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return nil, fmt.Errorf("%s: %w; expected a schema as in a CustomResourceDefinition", schemaField, err)
	}
	_, s, err := Structural(&given)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", schemaField, err)
	}
	if s.Type != "object" {
		return nil, fmt.Errorf("%s.type: it is %q; expected object: parameters are an object", schemaField, s.Type)
	}
	errs := schema.ValidateStructural(schemaField, s)
	(&schema.Visitor{Structural: func(below *schema.Structural) bool {
		if len(below.XValidations) > 0 {
			errs = append(errs, field.Forbidden(schemaField, "x-kubernetes-validations are not evaluated; expected such rules in the module"))
		}
		return false
	}}).Visit(s)
	return s, errs.ToAggregate()
}

// Structural is the schema of a CustomResourceDefinition as API servers use it.
func Structural(given *apiextensionsv1.JSONSchemaProps) (props *apiextensions.JSONSchemaProps, s *schema.Structural, err error) {
	props = &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(given, props, nil); err != nil {
		return nil, nil, err
	}
	s, err = schema.NewStructural(props)
	return props, s, err
}

// addTypes adds a module without rules by which OPA's type checker knows the schema of the
// parameters, in the package of the policy and in those of its tests.
func (v *version) addTypes(modules map[string]*ast.Module) {
	if v.schema == nil {
		return
	}
	module := ast.MustParseModuleWithOpts("# METADATA\n# scope: subpackages\n# title: Parameters\npackage comity\n", ast.ParserOptions{ProcessAnnotation: true})
	types := any(typesOf(v.schema))
	module.Annotations[0].Schemas = []*ast.SchemaAnnotation{{Path: mustPath(paramsPath + "." + v.pkg), Definition: &types}}
	modules["comity/parameters.rego"] = module
}

// typesOf is the part of a schema that OPA's type checker understands: anything may be in an
// object that has more than its properties, and in what may be null.
func typesOf(s *schema.Structural) map[string]any {
	if s.Nullable || s.Type == "" {
		return map[string]any{}
	}
	types := map[string]any{"type": s.Type}
	if s.Items != nil {
		types["items"] = typesOf(s.Items)
	}
	if s.AdditionalProperties == nil && !s.XPreserveUnknownFields {
		properties := map[string]any{}
		for name, property := range s.Properties {
			properties[name] = typesOf(&property)
		}
		types["properties"] = properties
	}
	return types
}

// isNothing reports whether a JSON text is missing.
func isNothing(given *apiextensionsv1.JSON) bool {
	return given == nil || slices.Contains([]string{"", "null"}, strings.TrimSpace(string(given.Raw)))
}
