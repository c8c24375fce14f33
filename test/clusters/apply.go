// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
)

const (
	// fieldOwner is who applied what the test clusters bring along.
	fieldOwner = client.FieldOwner("comity-test-clusters")
	// applyTimeout bounds how long an object may take to be accepted and a definition to be served.
	applyTimeout = 30 * time.Second
)

// MCSDefinitions are the CustomResourceDefinitions of the MCS API, as its project publishes them.
func MCSDefinitions() [][]byte {
	return [][]byte{mcscrd.ServiceExportCRD, mcscrd.ServiceImportCRD}
}

// Files reads the *.yaml files in the root of a file system, such as config/crd's.
func Files(from fs.FS) ([][]byte, error) {
	names, err := fs.Glob(from, "*.yaml")
	if err != nil {
		return nil, err
	}
	texts := make([][]byte, 0, len(names))
	for _, name := range names {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// Apply applies YAML manifests of any kind in the order given, each of one or
// more documents, by server-side apply, and waits until the
// CustomResourceDefinitions among them are served.
func Apply(ctx context.Context, config *rest.Config, manifests ...[]byte) error {
	c, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	for _, manifest := range manifests {
		objects, err := Decode(manifest)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := applyOne(ctx, c, object); err != nil {
				return fmt.Errorf("apply %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
			}
		}
	}
	return nil
}

func applyOne(ctx context.Context, c client.Client, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	key := client.ObjectKeyFromObject(object)
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), fieldOwner, client.ForceOwnership)
		// A kind that was defined a moment ago may not be served yet, and a fresh
		// API server may not have its bootstrap policy yet; all else is final.
		return last == nil, permanent(last)
	})
	if err != nil {
		return errors.Join(err, last)
	}
	if object.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(object.GroupVersionKind())
		if err := c.Get(ctx, key, current); err != nil {
			return false, err
		}
		conditions, _, err := unstructured.NestedSlice(current.Object, "status", "conditions")
		if err != nil {
			return false, nil //nolint:nilerr // conditions of a definition that no one has looked at yet are null
		}
		for _, condition := range conditions {
			if m, ok := condition.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
				return true, nil
			}
		}
		return false, nil
	})
}

// permanent gives back an error that waiting does not cure.
func permanent(err error) error {
	if err == nil || meta.IsNoMatchError(err) || strings.Contains(err.Error(), "not yet ready to handle request") {
		return nil
	}
	return err
}

// Decode reads the objects of a YAML manifest of one or more documents.
func Decode(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a manifest: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
