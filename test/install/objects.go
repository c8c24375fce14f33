// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/binaries"
)

// renderTimeout bounds kubectl, which only reads files here.
const renderTimeout = time.Minute

// Root is the folder of the project's checkout. It panics if the working directory is outside of it.
func Root() string {
	root, err := binaries.ProjectRoot()
	if err != nil {
		panic(err)
	}
	return root
}

// rendered is the output of render, which is the same for all clusters.
var rendered struct {
	sync.Mutex
	manifests []byte
}

// render is what `kubectl apply -k config/default` would apply.
func render(ctx context.Context, kubectl string) ([]*unstructured.Unstructured, error) {
	rendered.Lock()
	defer rendered.Unlock()
	if rendered.manifests != nil {
		return clusters.Decode(rendered.manifests)
	}
	ctx, cancel := context.WithTimeout(ctx, renderTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, kubectl, "kustomize", filepath.Join(Root(), "config", "default"))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl kustomize config/default: %w: %s", err, stderr.String())
	}
	rendered.manifests = out
	return clusters.Decode(out)
}

// apply applies objects in the order in which they depend on each other.
func apply(ctx context.Context, c clusters.Cluster, objects []*unstructured.Unstructured) error {
	sorted := slices.Clone(objects)
	slices.SortStableFunc(sorted, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	var manifests [][]byte
	for _, o := range sorted {
		text, err := o.MarshalJSON()
		if err != nil {
			return err
		}
		manifests = append(manifests, text)
	}
	return clusters.Apply(ctx, c.RESTConfig(), manifests...)
}

// rank orders kinds: what others live in or are judged by comes first, webhooks
// last, because they judge all that comes after them.
func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "Namespace", "CustomResourceDefinition":
		return 0
	case "ServiceAccount", "ClusterRole", "Role", "ConfigMap":
		return 1
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return 3
	default:
		return 2
	}
}
