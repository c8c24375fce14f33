// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Kind is that of a policy's manifest.
const Kind = "ExportPolicy"

// Document is one object of a file of manifests.
type Document struct {
	metav1.TypeMeta
	// Place is the file, and the number of the document if there are several.
	Place string
	// JSON is the object.
	JSON []byte
}

// Decode reads the object into a type. A field that the type does not have, and one
// that is there twice, are errors.
func (d Document) Decode(into any) error {
	if err := decode(d.JSON, into); err != nil {
		return fmt.Errorf("%s: %s: %w", d.Place, d.Kind, err)
	}
	return nil
}

// decode names the path of a field that the type does not have.
func decode(text []byte, into any) error {
	strict, err := json.UnmarshalStrict(text, into)
	return errors.Join(append(strict, err)...)
}

// Documents are the objects in a file of manifests, YAML or JSON; those of a List
// one by one. A mapping without kind is among them: not every file is of Kubernetes.
func Documents(path string) ([]Document, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, err
	}
	var all []Document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		place := path
		if number > 1 {
			place = fmt.Sprintf("%s, document %d", path, number)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		documents, err := parse(place, part)
		if err != nil {
			return nil, err
		}
		all = append(all, documents...)
	}
	return all, nil
}

func parse(place string, text []byte) ([]Document, error) {
	// Strict: of two equal keys, one would be lost.
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", place, err)
	}
	if string(asJSON) == "null" {
		return nil, nil // only comments
	}
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Items           []apiextensionsv1.JSON `json:"items"`
	}
	if err := yaml.Unmarshal(asJSON, &list); err != nil {
		return nil, fmt.Errorf("%s: %w; expected a Kubernetes object", place, err)
	}
	if list.Kind != "List" || list.APIVersion != "v1" {
		return []Document{{TypeMeta: list.TypeMeta, Place: place, JSON: asJSON}}, nil
	}
	var all []Document
	for i, item := range list.Items {
		documents, err := parse(fmt.Sprintf("%s, item %d", place, i+1), item.Raw)
		if err != nil {
			return nil, err
		}
		all = append(all, documents...)
	}
	return all, nil
}

// readManifests reads the ExportPolicies in a file, and what else is there.
func readManifests(path string) (found []Policy, others []Document, _ error) {
	documents, err := Documents(path)
	for _, document := range documents {
		if document.Kind != Kind {
			others = append(others, document)
			continue
		}
		policy, err := DecodePolicy(path, document)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, policy)
	}
	return found, others, err
}

// DecodePolicy reads a document of a file as an ExportPolicy.
func DecodePolicy(path string, document Document) (Policy, error) {
	if document.APIVersion != v1alpha1.GroupVersion.String() {
		return Policy{}, fmt.Errorf("%s: apiVersion of an ExportPolicy is %q; expected %s", document.Place, document.APIVersion, v1alpha1.GroupVersion)
	}
	policy := &v1alpha1.ExportPolicy{}
	if err := document.Decode(policy); err != nil {
		return Policy{}, err
	}
	if policy.Name == "" {
		return Policy{}, fmt.Errorf("%s: metadata.name is not set; expected the name of the ExportPolicy", document.Place)
	}
	return Policy{Object: policy, Path: path}, nil
}
