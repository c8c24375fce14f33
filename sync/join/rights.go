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
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// right is one thing that an access must allow. namespace is empty for all of them, and
// resource may have a subresource.
type right struct{ verb, group, resource, namespace string }

// String is the right as kubectl auth can-i takes it.
func (r right) String() string {
	resource, sub, _ := strings.Cut(r.resource, "/")
	text := r.verb + " " + resource
	if r.group != "" {
		text += "." + r.group
	}
	if sub != "" {
		text += "/" + sub
	}
	if r.namespace != "" {
		text += " in namespace " + r.namespace
	}
	return text
}

// rights are what the access to one cluster must allow.
type rights []right

// need adds rights. resources and verbs are separated by spaces.
func (r *rights) need(namespace, group, resources, verbs string) {
	for resource := range strings.FieldsSeq(resources) {
		for verb := range strings.FieldsSeq(verbs) {
			if one := (right{verb, group, resource, namespace}); !slices.Contains(*r, one) {
				*r = append(*r, one)
			}
		}
	}
}

// applyVerbs are those for server-side apply: a patch, and a creation where there is
// nothing yet.
const applyVerbs = "get create patch"

// checkRights refuses to begin what a missing right would interrupt. The error
// names every missing right of every cluster.
func (p *Prepared) checkRights(ctx context.Context) error {
	var problems []string
	for _, m := range p.clusters() {
		missing, err := m.missing(ctx, p.rightsAt(m))
		if err != nil {
			return m.errorf("%w", err)
		}
		if len(missing) > 0 {
			problems = append(problems, m.errorf("%s", strings.Join(missing, "; ")).Error())
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New("the access given lacks rights, so nothing was written. " + strings.Join(problems, ". ") +
		". Ask an administrator of the cluster for them, or use a context that has them")
}

// rightsAt are those to check a member, and to write there and give other clusters
// credentials. A Role may grant only what its author holds, unless the author may escalate
// and bind.
func (p *Prepared) rightsAt(m *member) (r rights) {
	peers := v1alpha1.GroupVersion.Group
	if !m.isHub {
		r.need("", "", "nodes", "list")
		r.need(metav1.NamespaceSystem, "", "configmaps", "get")
		r.need("", "", "namespaces", "get")
		r.need(m.Namespace, "", "secrets", "get")
		r.need("", peers, "peers", "get")
	}
	if p.opts.ReadOnly {
		return r
	}
	if !m.isHub {
		r.need("", "", "namespaces", applyVerbs)
		r.need(m.Namespace, "", "secrets", applyVerbs)
		r.need("", peers, "peers", applyVerbs)
	}
	at := slices.IndexFunc(p.exchanges, func(of ClusterObjects) bool { return of.Cluster == m.ID })
	if at < 0 {
		return r
	}
	for _, object := range p.exchanges[at].Objects {
		namespace := object.GetNamespace()
		switch object.(type) {
		case *corev1.Namespace:
			r.need("", "", "namespaces", applyVerbs)
		case *corev1.ResourceQuota:
			r.need(namespace, "", "resourcequotas", applyVerbs)
		case *corev1.ServiceAccount:
			r.need(namespace, "", "serviceaccounts", applyVerbs)
		case *rbacv1.Role:
			r.need(namespace, rbacv1.GroupName, "roles", applyVerbs+" escalate")
		case *rbacv1.RoleBinding:
			r.need(namespace, rbacv1.GroupName, "rolebindings", applyVerbs+" list")
			r.need(namespace, rbacv1.GroupName, "roles", "bind")
		}
	}
	r.need(m.Namespace, "", "serviceaccounts/token", "create")
	r.need("", "authentication.k8s.io", "tokenreviews", "create")
	r.need(m.Namespace, rbacv1.GroupName, "roles", "list")
	if p.opts.Rotate {
		r.need(m.Namespace, "", "serviceaccounts", "delete")
	}
	return r
}

// missing are the rights that the access does not allow, as text.
func (m *member) missing(ctx context.Context, all rights) (missing []string, err error) {
	if everything, err := m.allows(ctx, right{verb: "*", group: "*", resource: "*"}); err != nil || everything {
		return nil, err
	}
	for _, r := range all {
		allowed, err := m.allows(ctx, r)
		if err == nil && !allowed && (r.verb == "escalate" || r.verb == "bind") {
			allowed, err = m.holdsAll(ctx, r.namespace)
		}
		if err != nil {
			return nil, err
		}
		if !allowed {
			missing = append(missing, r.String())
		}
	}
	return missing, nil
}

// holdsAll reports whether the access holds all that a Role in namespace grants,
// so that it needs neither escalate nor bind.
func (m *member) holdsAll(ctx context.Context, namespace string) (bool, error) {
	rules := exchangeRules(writeVerbs, leaseVerbs)
	if namespace == m.Namespace {
		rules = []rbacv1.PolicyRule{renewRule("")}
	}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				if allowed, err := m.allows(ctx, right{verb, rule.APIGroups[0], resource, namespace}); err != nil || !allowed {
					return false, err
				}
			}
		}
	}
	return true, nil
}

func (m *member) allows(ctx context.Context, r right) (bool, error) {
	resource, sub, _ := strings.Cut(r.resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.verb, Group: r.group, Resource: resource, Subresource: sub, Namespace: r.namespace},
	}}
	if err := m.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask whether %s is allowed: %w", r, err)
	}
	return review.Status.Allowed, nil
}
