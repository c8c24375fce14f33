// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// clusterProperty is read as unstructured, because its Go module is not published.
var clusterProperty = schema.GroupVersionKind{Group: "about.k8s.io", Version: "v1beta1", Kind: "ClusterProperty"}

// identity identifies this member.
type identity struct {
	cluster model.ClusterID
	set     string
	uid     types.UID
}

// findIdentity reads the id and the clusterset from ClusterProperty (KEP-2149) if
// it exists, else from the options. It returns an error if both are set and
// differ.
func findIdentity(ctx context.Context, c client.Reader, o Options) (identity, error) {
	id, errID := agree(ctx, c, model.LabelClusterID, "--cluster-id", o.ClusterID)
	set, errSet := agree(ctx, c, model.LabelClusterSet, "--clusterset", o.ClusterSet)
	if err := cmp.Or(errID, errSet); err != nil {
		return identity{}, err
	}
	cluster, err := model.ParseClusterID(id)
	if err != nil {
		return identity{}, fmt.Errorf("ClusterProperty %s, spec.value: %w", model.LabelClusterID, err)
	}
	if err := validateClusterSet(set); err != nil {
		return identity{}, fmt.Errorf("ClusterProperty %s, spec.value: %w", model.LabelClusterSet, err)
	}
	return identity{cluster: cluster, set: set}, nil
}

// findUID returns the UID of the kube-system namespace. It distinguishes this
// cluster from another one that has or had the same id.
func findUID(ctx context.Context, c client.Reader) (types.UID, error) {
	system := &corev1.Namespace{}
	if err := c.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("read Namespace %s, whose UID identifies this cluster: %w", metav1.NamespaceSystem, err)
	}
	return system.UID, nil
}

// agree returns the value of a ClusterProperty and of a flag, which must not
// differ.
func agree(ctx context.Context, c client.Reader, property, flag, given string) (string, error) {
	stored, err := readProperty(ctx, c, property)
	switch {
	case err != nil:
		return "", fmt.Errorf("read ClusterProperty %s: %w", property, err)
	case stored == "" && given == "":
		return "", fmt.Errorf("%s is not set and ClusterProperty %s does not exist: set one of them", flag, property)
	case stored == "":
		return given, nil
	case given != "" && given != stored:
		return "", fmt.Errorf("%s is %q but ClusterProperty %s is %q: leave the flag out, or correct the value that is wrong", flag, given, property, stored)
	}
	return stored, nil
}

// readProperty returns the value of a ClusterProperty, "" if it does not exist.
func readProperty(ctx context.Context, c client.Reader, name string) (string, error) {
	property := &unstructured.Unstructured{}
	property.SetGroupVersionKind(clusterProperty)
	err := c.Get(ctx, types.NamespacedName{Name: name}, property)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	value, _, err := unstructured.NestedString(property.Object, "spec", "value")
	return value, err
}
