// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/policies/source"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
)

// PolicyOptions say which ExportPolicies are installed.
type PolicyOptions struct {
	// File has the policies.
	File string
	// OwnerClusterRole is the ClusterRole with which the policies are deleted;
	// empty: they have no owner.
	OwnerClusterRole string
}

// Policies makes the ExportPolicies that this package applied be those of the
// manifest. It checks all of them before it writes the first. out receives one line for each.
func Policies(ctx context.Context, c client.Client, out io.Writer, o PolicyOptions) error {
	wanted, err := decode(o.File)
	if err != nil {
		return err
	}
	var owners []metav1.OwnerReference
	var stored map[string]metav1.PartialObjectMetadata
	if err := await(ctx, out, func(ctx context.Context) (err error) {
		if o.OwnerClusterRole != "" {
			role := &rbacv1.ClusterRole{}
			if err := c.Get(ctx, client.ObjectKey{Name: o.OwnerClusterRole}, role); err != nil {
				return fmt.Errorf("--owner-cluster-role: %w", err)
			}
			owners = []metav1.OwnerReference{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: role.Name, UID: role.UID}}
		}
		stored, err = readPolicies(ctx, c, wanted, o.OwnerClusterRole)
		return err
	}); err != nil {
		return err
	}
	for _, policy := range wanted {
		policy.SetOwnerReferences(owners)
		was := stored[policy.GetName()]
		delete(stored, policy.GetName())
		if err := apply(ctx, c, out, policy, &was); err != nil {
			return fmt.Errorf("%s: %w", o.File, err)
		}
	}
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(stored)) { // what an earlier run applied and the file no longer has
		old := stored[name]
		if old.Labels[labelManagedBy] != fieldOwner || old.DeletionTimestamp != nil {
			continue
		}
		failed = append(failed, await(ctx, out, func(ctx context.Context) error {
			if err := client.IgnoreNotFound(c.Delete(ctx, &old, client.Preconditions{UID: &old.UID})); err != nil {
				return fmt.Errorf("delete exportpolicy %s, which the file no longer has: %w", name, err)
			}
			say(out, "exportpolicy %s deleted", name)
			return nil
		}))
	}
	return errors.Join(failed...)
}

// readPolicies are those of everybody, by name. It refuses wanted ones that exist and that
// this package did not apply, and has those awaited that are being deleted, and those of another
// installation, whose ClusterRole owns them: they go with it.
func readPolicies(ctx context.Context, c client.Client, wanted []*unstructured.Unstructured, owner string) (map[string]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(policyKind)
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list exportpolicies: %w", err)
	}
	stored := map[string]metav1.PartialObjectMetadata{}
	for _, one := range list.Items {
		stored[one.Name] = one
	}
	var foreign, going error
	for _, one := range list.Items {
		if o := one.OwnerReferences; len(o) > 0 && o[0].Name != owner && one.Labels[labelManagedBy] == fieldOwner {
			going = fmt.Errorf("exportpolicy %s belongs to %s %s, another installation of Comity; one cluster has one: uninstall that", one.Name, o[0].Kind, o[0].Name)
		}
	}
	for _, policy := range wanted {
		switch current, exists := stored[policy.GetName()]; {
		case exists && current.Labels[labelManagedBy] != fieldOwner:
			foreign = errors.Join(foreign, refused{fmt.Errorf("exportpolicy %s exists and was not applied by this command (label %s: %s): delete it, or give that of the file another name",
				current.Name, labelManagedBy, fieldOwner)})
		case current.DeletionTimestamp != nil:
			going = fmt.Errorf("exportpolicy %s is being deleted", current.Name)
		}
	}
	return stored, cmp.Or(foreign, going)
}

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
		read, err := source.DecodePolicy(file, document)
		if err != nil {
			return nil, err
		}
		policy := read.Object
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
