// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/config/crd"
)

const (
	// fieldOwner applies everything that this package writes.
	fieldOwner = "comity-install"
	// labelManagedBy with the value fieldOwner is on everything that this package writes.
	labelManagedBy = "app.kubernetes.io/managed-by"
	// annotationVersion is the version of Comity that applied a definition.
	annotationVersion = "comity.dev/version"
)

// CRDOptions say which definitions are installed.
type CRDOptions struct {
	// Version is that of the binary.
	Version string
	// MCS also installs the definitions of the MCS API.
	MCS bool
	// Timeout bounds the whole.
	Timeout time.Duration
	// Out receives one line for each definition.
	Out io.Writer
}

// definition is a CustomResourceDefinition that the binary embeds.
type definition struct {
	*unstructured.Unstructured
	// mcs is true for the definitions of the MCS API, which others may own.
	mcs bool
	// optional is true for definitions that are checked and not applied.
	optional bool
}

// CRDs installs the definitions and waits until they are established. It checks
// all of them before it writes the first.
func CRDs(ctx context.Context, c client.Client, o CRDOptions) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	definitions, err := embedded(o)
	if err != nil {
		return err
	}
	var refused []error
	for _, d := range definitions {
		refused = append(refused, await(ctx, o.Out, func(ctx context.Context) error {
			_, _, err := examine(ctx, c, d, o.Version)
			return err
		}))
	}
	if err := errors.Join(refused...); err != nil {
		return err
	}
	for _, d := range definitions {
		if err := await(ctx, o.Out, func(ctx context.Context) error { return install(ctx, c, d, o) }); err != nil {
			return fmt.Errorf("customresourcedefinition %s: %w", d.GetName(), err)
		}
	}
	for _, d := range definitions {
		if err := await(ctx, o.Out, func(ctx context.Context) error { return established(ctx, c, d) }); err != nil {
			return err
		}
	}
	return nil
}

// install applies one definition if it has to be applied, and says what it did.
func install(ctx context.Context, c client.Client, d definition, o CRDOptions) error {
	current, done, err := examine(ctx, c, d, o.Version)
	if err != nil {
		return err
	}
	if done == "" {
		applied := d.DeepCopy()
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
			return err
		}
		done = outcome(current, applied)
	}
	say(o.Out, "customresourcedefinition %s %s", d.GetName(), done)
	return nil
}

// examine reads a definition and says why it is left as it is; "" if it has to be applied.
func examine(ctx context.Context, c client.Client, d definition, version string) (current *apiextensionsv1.CustomResourceDefinition, leave string, err error) {
	if current, err = find(ctx, c, d.GetName()); err == nil {
		leave, err = decide(d, current, version)
	}
	return current, leave, err
}

// outcome names what an apply did to an object; was has no resource version if
// there was none.
func outcome(was, is client.Object) string {
	switch was.GetResourceVersion() {
	case "":
		return "created"
	case is.GetResourceVersion():
		return "unchanged"
	}
	return "configured"
}

// find reads a definition; one that does not exist comes back empty.
func find(ctx context.Context, c client.Client, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	current := &apiextensionsv1.CustomResourceDefinition{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, current)
	switch {
	case apierrors.IsNotFound(err):
		return &apiextensionsv1.CustomResourceDefinition{}, nil
	case err != nil:
		return nil, fmt.Errorf("read customresourcedefinition %s: %w", name, err)
	case current.DeletionTimestamp != nil:
		return nil, wait("customresourcedefinition %s is being deleted, with all its objects; it is installed again once it is gone", name)
	}
	return current, nil
}

// established waits until the API server serves a definition.
func established(ctx context.Context, c client.Client, d definition) error {
	current, err := find(ctx, c, d.GetName())
	if err != nil {
		return err
	}
	if d.optional && current.ResourceVersion == "" {
		return nil
	}
	for _, condition := range current.Status.Conditions {
		switch {
		case condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue:
			return nil
		case condition.Type == apiextensionsv1.NamesAccepted && condition.Status == apiextensionsv1.ConditionFalse:
			return wait("customresourcedefinition %s: its names are not accepted: %s", d.GetName(), condition.Message)
		}
	}
	return wait("customresourcedefinition %s is not established yet", d.GetName())
}

// embedded are the definitions to install.
func embedded(o CRDOptions) (all []definition, err error) {
	for _, text := range [][]byte{mcscrd.ServiceExportCRD, mcscrd.ServiceImportCRD} {
		object, decodeErr := decodeCRD(text, o.Version)
		err = errors.Join(err, decodeErr)
		all = append(all, definition{Unstructured: object, mcs: true, optional: !o.MCS})
	}
	names, globErr := fs.Glob(crd.FS, "*.yaml")
	err = errors.Join(err, globErr)
	for _, name := range names {
		text, readErr := fs.ReadFile(crd.FS, name)
		object, decodeErr := decodeCRD(text, o.Version)
		err = errors.Join(err, readErr, decodeErr)
		all = append(all, definition{Unstructured: object})
	}
	return all, err
}

// decodeCRD reads a definition, and adds to its labels and annotations who applies it.
func decodeCRD(text []byte, version string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &object.Object); err != nil {
		return nil, fmt.Errorf("read an embedded definition: %w", err)
	}
	object.SetLabels(labels.Merge(object.GetLabels(), labels.Set{labelManagedBy: fieldOwner}))
	object.SetAnnotations(labels.Merge(object.GetAnnotations(), labels.Set{annotationVersion: version}))
	return object, nil
}

// newScheme knows the kinds that are read typed.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	return scheme
}
