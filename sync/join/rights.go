// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// Rights are what an access to one cluster must allow. Of each, the namespace is empty for
// all of them.
type Rights []authorizationv1.ResourceAttributes

// Need adds rights. resources and verbs are separated by spaces.
func (r *Rights) Need(namespace, group, resources, verbs string) {
	for resource := range strings.FieldsSeq(resources) {
		resource, sub, _ := strings.Cut(resource, "/")
		for verb := range strings.FieldsSeq(verbs) {
			one := authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace}
			if !slices.Contains(*r, one) {
				*r = append(*r, one)
			}
		}
	}
}

// DisplayRight is a right as kubectl auth can-i takes it.
func DisplayRight(r authorizationv1.ResourceAttributes) string {
	text := r.Verb + " " + schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// applyVerbs are those for server-side apply: a patch, and a creation where there is
// nothing yet.
const applyVerbs = "get list create patch"

// checkRights refuses to begin what a missing right would interrupt. The error
// names every missing right of every cluster.
func (p *Prepared) checkRights(ctx context.Context) error {
	var lacking error
	for _, m := range p.clusters {
		missing, err := m.missing(ctx, m.rights())
		if err != nil {
			return m.named(err)
		}
		if len(missing) > 0 {
			lacking = errors.Join(lacking, m.named(errors.New(strings.Join(missing, "; "))))
		}
	}
	if lacking == nil {
		return nil
	}
	return fmt.Errorf("the access given lacks rights, so nothing was written; ask an administrator for them, or use a context that has them:\n%w", lacking)
}

// rights are those to check m, and to write there and give other clusters credentials. A Role
// may grant only what its author holds.
func (m *member) rights() (r Rights) {
	verbs := applyVerbs
	if m.opts.ReadOnly {
		verbs = "get"
	}
	if !m.isHub {
		r.Need("", "", "nodes", "list")
		r.Need(metav1.NamespaceSystem, "", "configmaps", "get")
		r.Need("", "", "namespaces", verbs)
		r.Need(m.Namespace, "", "secrets", verbs)
		r.Need("", v1alpha1.GroupVersion.Group, "peers", verbs)
	}
	if m.opts.ReadOnly || len(m.exchange) == 0 {
		return r
	}
	for _, object := range m.exchange {
		kind := m.kindOf(object)
		r.Need(object.GetNamespace(), kind.Group, strings.ToLower(kind.Kind)+"s", applyVerbs)
		if role, is := object.(*rbacv1.Role); is {
			for _, rule := range role.Rules {
				r.Need(role.Namespace, rule.APIGroups[0], strings.Join(rule.Resources, " "), strings.Join(rule.Verbs, " "))
			}
		}
	}
	r.Need("", "authentication.k8s.io", "tokenreviews", "create")
	if m.opts.Rotate {
		r.Need(m.Namespace, "", "serviceaccounts", "delete")
	}
	return r
}

// missing are the rights that the access does not allow, as text.
func (m *member) missing(ctx context.Context, all Rights) (missing []string, err error) {
	everything := Rights{{Verb: "*", Group: "*", Resource: "*"}}
	for i, r := range append(everything, all...) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &r}}
		if err := m.client.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("ask whether %s is allowed: %w", DisplayRight(r), err)
		}
		switch {
		case i == 0 && review.Status.Allowed:
			return nil, nil
		case i > 0 && !review.Status.Allowed:
			missing = append(missing, DisplayRight(r))
		}
	}
	return missing, nil
}
