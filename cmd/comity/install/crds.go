// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcscrd "sigs.k8s.io/mcs-api/config/crd"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/config/crd"
	"github.com/comity-mcs/comity/sync/model"
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
}

// definition is a CustomResourceDefinition that the binary embeds.
type definition struct {
	*unstructured.Unstructured
	// mcs is true for the definitions of the MCS API, which others may own.
	mcs bool
	// current is what is stored, and leave why that is left as it is; "" if it has to be applied.
	current *apiextensionsv1.CustomResourceDefinition
	leave   string
}

// CRDs installs the definitions and waits until they are established. It checks
// all of them before it writes the first. out receives one line for each.
func CRDs(ctx context.Context, c client.Client, out io.Writer, o CRDOptions) error {
	definitions := embedded(o)
	var failed []error
	for i := range definitions {
		d := &definitions[i]
		failed = append(failed, await(ctx, out, func(ctx context.Context) (err error) {
			if d.current, err = find(ctx, c, d.GetName()); err == nil {
				d.leave, err = d.decide(o.Version)
			}
			return err
		}))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	for _, d := range definitions {
		if d.leave != "" {
			say(out, "%s %s", title(d.Unstructured), d.leave)
		} else if err := apply(ctx, c, out, d.Unstructured, d.current); err != nil {
			return err
		}
	}
	for _, d := range definitions {
		if err := await(ctx, out, func(ctx context.Context) error { return established(ctx, c, d) }); err != nil {
			return err
		}
	}
	return nil
}

// find reads a definition; one that does not exist comes back empty.
func find(ctx context.Context, c client.Client, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	current := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, current); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read customresourcedefinition %s: %w", name, err)
	}
	if current.DeletionTimestamp != nil {
		return nil, fmt.Errorf("customresourcedefinition %s is being deleted, with all its objects; it is installed again once it is gone", name)
	}
	return current, nil
}

// established waits until the API server serves a definition.
func established(ctx context.Context, c client.Client, d definition) error {
	current, err := find(ctx, c, d.GetName())
	if err != nil {
		return err
	}
	if apihelpers.IsCRDConditionTrue(current, apiextensionsv1.Established) {
		return nil
	}
	names := ptr.Deref(apihelpers.FindCRDCondition(current, apiextensionsv1.NamesAccepted), apiextensionsv1.CustomResourceDefinitionCondition{})
	return fmt.Errorf("customresourcedefinition %s is not established yet; its names: %s", d.GetName(), cmp.Or(names.Message, "not checked yet"))
}

// embedded are the definitions to install, with the annotation that says which version applies them.
func embedded(o CRDOptions) (all []definition) {
	texts := [][]byte{mcscrd.ServiceExportCRD, mcscrd.ServiceImportCRD}
	if !o.MCS {
		texts = nil
	}
	ofMCS := len(texts)
	names, _ := fs.Glob(crd.FS, "*.yaml") // the pattern is well-formed
	for _, name := range names {
		text, _ := crd.FS.ReadFile(name) // it is embedded
		texts = append(texts, text)
	}
	for i, text := range texts {
		d := definition{Unstructured: &unstructured.Unstructured{}, mcs: i < ofMCS}
		utilruntime.Must(yaml.Unmarshal(text, &d.Object)) // not reached, as above
		d.SetAnnotations(labels.Merge(d.GetAnnotations(), labels.Set{annotationVersion: o.Version}))
		all = append(all, d)
	}
	return all
}

// decide says why a definition is left as it is; "" if it has to be applied.
// The error is of one that neither can be used nor may be changed. What is stored has
// no resource version if there is none.
//
//	stored                      MCS API           Comity's own
//	none                        apply             apply
//	applied by us, newer        leave             leave
//	applied by us, else         apply             apply
//	of others, can be used      leave             apply
//	of others, cannot be used   refuse            apply
func (d definition) decide(ours string) (leave string, err error) {
	current := d.current
	exists := current.ResourceVersion != ""
	isOurs := current.Labels[labelManagedBy] == fieldOwner || model.AppliedBy(current, fieldOwner, "")
	switch {
	case exists && d.mcs && !isOurs:
		if err := usable(current); err != nil {
			return "", err
		}
		return fmt.Sprintf("left alone (belongs to %s)", model.OwnerOf(current)), nil
	case exists && newer(current.Annotations[annotationVersion], ours):
		return fmt.Sprintf("left alone (applied by Comity %s, which is newer than this %s)", current.Annotations[annotationVersion], ours), nil
	}
	return "", nil
}

// usable refuses a definition of the MCS API that lacks what the agent reads and writes.
func usable(crd *apiextensionsv1.CustomResourceDefinition) error {
	var served []string
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		if v.Subresources == nil || v.Subresources.Status == nil {
			v.Name += " without the status subresource"
		}
		if v.Name == mcsv1beta1.GroupVersion.Version {
			return nil
		}
		served = append(served, v.Name)
	}
	slices.Sort(served)
	return refused{fmt.Errorf("customresourcedefinition %s is too old: it serves %s; expected %s with the status subresource (mcs-api v0.5.2). It belongs to %s: "+
		"upgrade that, or delete the definition with all its objects",
		crd.Name, cmp.Or(strings.Join(served, ", "), "no version"), mcsv1beta1.GroupVersion.Version, model.OwnerOf(crd))}
}

// development matches versions of builds between two releases, as `git describe` names them.
var development = regexp.MustCompile(`-(\d+-g[0-9a-f]+(-dirty)?|dirty)$`)

// newer reports whether installed is a later release than ours. A build that is
// no release has no order, so that it is always applied and always replaced.
func newer(installed, ours string) bool {
	if development.MatchString(installed) || development.MatchString(ours) {
		return false
	}
	a, errInstalled := version.ParseSemantic(installed)
	b, errOurs := version.ParseSemantic(ours)
	return errInstalled == nil && errOurs == nil && b.LessThan(a)
}
