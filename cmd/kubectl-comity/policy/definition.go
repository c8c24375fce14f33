// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/config/crd"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/source"
)

// The limits of an API server on the cost of rules.
const (
	callCost = 1_000_000
	ruleCost = 10 * callCost
)

// definition is the CustomResourceDefinition of ExportPolicies, by which an API server
// refuses one before any webhook sees it.
type definition struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func readDefinition() (*definition, error) {
	text, err := crd.FS.ReadFile("policy.comity.dev_exportpolicies.yaml")
	if err != nil {
		return nil, err
	}
	var given apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &given); err != nil {
		return nil, err
	}
	props, structural, err := engine.Structural(given.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(props)
	return &definition{structural, validator, cel.NewValidator(structural, true, callCost)}, err
}

// check is what an API server says of a policy.
func (d *definition) check(policy source.Policy) (found []Finding) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy.Object)
	if err != nil {
		return []Finding{{Policy: policy.Name(), File: policy.Path, Message: err.Error()}}
	}
	defaulting.Default(object, d.structural)
	errs := validation.ValidateCustomResource(nil, object, d.schema)
	if len(errs) == 0 { // as an API server: rules may rely on the schema
		errs, _ = d.rules.Validate(context.Background(), nil, nil, object, nil, ruleCost)
	}
	for _, e := range errs {
		found = append(found, located(policy, e)...)
	}
	return found
}
