// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
)

var policyKind = policyv1alpha1.GroupVersion.WithKind("ExportPolicy")

// decode reads the ExportPolicies of a manifest and refuses what the API server
// would drop or a chart got wrong. The error names file, document and field.
func decode(manifest []byte, file string) ([]*unstructured.Unstructured, error) {
	scheme := runtime.NewScheme()
	if err := policyv1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	var out []*unstructured.Unstructured
	at := map[string]int{}
	for document := 1; ; document++ {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", file, document, err)
		}
		policy, err := decodeOne(strict, text)
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", file, document, err)
		}
		if policy == nil {
			continue
		}
		if first, twice := at[policy.GetName()]; twice {
			return nil, fmt.Errorf("%s, document %d: metadata.name: %q is also the name of document %d; expected another name", file, document, policy.GetName(), first)
		}
		at[policy.GetName()] = document
		out = append(out, policy)
	}
}

// decodeOne reads one document; nil if it holds nothing but comments.
func decodeOne(strict runtime.Decoder, text []byte) (*unstructured.Unstructured, error) {
	object := map[string]any{}
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	if len(object) == 0 {
		return nil, nil
	}
	policy := &unstructured.Unstructured{Object: object}
	if kind := policy.GroupVersionKind(); kind != policyKind {
		return nil, fmt.Errorf("apiVersion and kind: %q and %q; expected %q and %q", policy.GetAPIVersion(), policy.GetKind(), policyKind.GroupVersion(), policyKind.Kind)
	}
	if _, _, err := strict.Decode(text, nil, &policyv1alpha1.ExportPolicy{}); err != nil {
		return nil, fmt.Errorf("ExportPolicy %s: %w", policy.GetName(), err)
	}
	switch {
	case policy.GetName() == "":
		return nil, errors.New("metadata.name: missing; expected the name of the ExportPolicy")
	case policy.GetNamespace() != "":
		return nil, fmt.Errorf("metadata.namespace: %q; expected none, an ExportPolicy belongs to the whole cluster", policy.GetNamespace())
	}
	return policy, nil
}
