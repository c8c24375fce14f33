// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"

	"github.com/comity-mcs/comity/config/crd"
)

// fieldOwner of everything this package applies.
const fieldOwner = client.FieldOwner("comity-install")

// settle bounds the wait for the API server to serve what was just applied.
const settle = 60 * time.Second

// Root is the folder of the project's checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// CRDs are the definitions of the MCS API and of Comity.
func CRDs() ([]*unstructured.Unstructured, error) {
	objects, err := parse(bytes.Join([][]byte{mcscrd.ServiceExportCRD, mcscrd.ServiceImportCRD}, []byte("\n---\n")))
	if err != nil {
		return nil, fmt.Errorf("MCS API definitions: %w", err)
	}
	err = fs.WalkDir(crd.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "kustomization.yaml" {
			return err
		}
		text, err := crd.FS.ReadFile(path)
		if err != nil {
			return err
		}
		more, err := parse(text)
		objects = append(objects, more...)
		return err
	})
	return objects, err
}

// Render is what `kubectl apply -k config/default` would apply.
func Render(ctx context.Context, kubectl string) ([]*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, kubectl, "kustomize", filepath.Join(Root(), "config", "default"))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl kustomize config/default: %w: %s", err, stderr.String())
	}
	return parse(out)
}

// Read is every object of YAML files.
func parse(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(u.Object) > 0 {
			objects = append(objects, u)
		}
	}
}

// Apply applies objects in the order in which they depend on each other, and
// waits until the API server serves the kinds among them.
func Apply(ctx context.Context, cfg *rest.Config, objects []*unstructured.Unstructured) error {
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	sorted := slices.Clone(objects)
	slices.SortStableFunc(sorted, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, o := range sorted {
		if err := applyOne(ctx, c, o); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), err)
		}
	}
	return nil
}

// applyOne retries while the kind is not served yet, which a CRD needs a moment for.
func applyOne(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, settle, true, func(ctx context.Context) (bool, error) {
		last = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()), fieldOwner, client.ForceOwnership)
		if meta.IsNoMatchError(last) || apierrors.IsNotFound(last) || apierrors.IsServiceUnavailable(last) {
			return false, nil
		}
		return true, last
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// rank orders kinds: what others live in or are judged by comes first, webhooks
// last, because they judge all that comes after them.
func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "Namespace", "CustomResourceDefinition":
		return 0
	case "ServiceAccount", "ClusterRole", "Role", "Secret", "ConfigMap":
		return 1
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		return 3
	default:
		return 2
	}
}
