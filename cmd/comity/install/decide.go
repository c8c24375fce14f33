// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// decide says why a definition is left as it is; "" if it has to be applied.
// The error is of one that neither can be used nor may be changed. current has
// no resource version if there is none.
//
//	current                     MCS API           Comity's own
//	none                        apply (*)         apply
//	applied by us, newer        leave             leave
//	applied by us, else         apply             apply
//	of others, can be used      leave             apply
//	of others, cannot be used   refuse            apply
//
// (*) not with --mcs=false
func decide(d definition, current *apiextensionsv1.CustomResourceDefinition, ours string) (leave string, err error) {
	exists := current.ResourceVersion != ""
	switch {
	case d.optional && !exists:
		return "is missing (--mcs=false): the agent waits until something else installs it", nil
	case exists && d.mcs && (d.optional || !isOurs(current)):
		if err := usable(current); err != nil {
			return "", err
		}
		return fmt.Sprintf("left alone (belongs to %s)", ownerOf(current)), nil
	case exists && newer(current.Annotations[annotationVersion], ours):
		return fmt.Sprintf("left alone (applied by Comity %s, which is newer than this %s)", current.Annotations[annotationVersion], ours), nil
	}
	return "", nil
}

// isOurs reports whether an earlier run applied the definition.
func isOurs(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd.Labels[labelManagedBy] == fieldOwner ||
		slices.ContainsFunc(crd.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == fieldOwner })
}

// ownerOf names who brought a definition, as far as its metadata says so.
func ownerOf(crd *apiextensionsv1.CustomResourceDefinition) string {
	if release := crd.Annotations["meta.helm.sh/release-name"]; release != "" {
		return fmt.Sprintf("Helm release %s/%s", crd.Annotations["meta.helm.sh/release-namespace"], release)
	}
	if by := crd.Labels[labelManagedBy]; by != "" {
		return by
	}
	for _, entry := range crd.ManagedFields {
		if entry.Subresource == "" {
			return "field owner " + entry.Manager
		}
	}
	return "something else"
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
	return fmt.Errorf("customresourcedefinition %s is too old: it serves %s; expected %s with the status subresource (mcs-api v0.5.2). It belongs to %s: "+
		"upgrade that, or delete the definition with all its objects",
		crd.Name, cmp.Or(strings.Join(served, ", "), "no version"), mcsv1beta1.GroupVersion.Version, ownerOf(crd))
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
