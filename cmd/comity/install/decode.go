// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/comity-mcs/comity/policies/source"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
)

var policyKind = policyv1alpha1.GroupVersion.WithKind(source.Kind)

// decode reads the ExportPolicies of a file and refuses what the API server
// would drop or a chart got wrong. The error names file, document and field.
func decode(file string) (all []*unstructured.Unstructured, err error) {
	documents, err := source.Documents(file)
	if err != nil {
		return nil, err
	}
	at := map[string]string{}
	for _, document := range documents {
		if document.Kind != source.Kind {
			return nil, fmt.Errorf("%s: kind is %q; expected %s", document.Place, document.Kind, source.Kind)
		}
		policy, err := source.DecodePolicy(document)
		if err != nil {
			return nil, err
		}
		if policy.Namespace != "" {
			return nil, fmt.Errorf("%s: metadata.namespace: %q; expected none, an ExportPolicy belongs to the whole cluster", document.Place, policy.Namespace)
		}
		if first, twice := at[policy.Name]; twice {
			return nil, fmt.Errorf("%s: metadata.name: %q is also the name in %s; expected another name", document.Place, policy.Name, first)
		}
		at[policy.Name] = document.Place
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(document.JSON); err != nil {
			return nil, fmt.Errorf("%s: %w", document.Place, err)
		}
		all = append(all, object)
	}
	return all, nil
}
