// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// right is one thing that an access must allow.
type right struct{ verb, group, resource, subresource, namespace string }

// String is the right as kubectl auth can-i takes it.
func (r right) String() string {
	text := r.verb + " " + r.resource
	if r.subresource != "" {
		text += "/" + r.subresource
	}
	if r.group != "" {
		text = strings.Replace(text, r.resource, r.resource+"."+r.group, 1)
	}
	if r.namespace != "" {
		text += " in namespace " + r.namespace
	}
	return text
}

// demand is what the access to one cluster must allow.
type demand struct {
	m      *member
	name   string
	rights []right
}

// demands are what the join needs, cluster by cluster.
func (p *Prepared) demands() []*demand {
	var all []*demand
	of := map[model.ClusterID]*demand{}
	for _, m := range p.members {
		d := &demand{m, "cluster " + string(m.ID), rightsToRead(m.Namespace)}
		if !p.opts.ReadOnly {
			d.rights = append(d.rights, rightsToApply("", "namespaces", "")...)
			d.rights = append(d.rights, rightsToApply("", "secrets", m.Namespace)...)
			d.rights = append(d.rights, rightsToApply(v1alpha1.GroupVersion.Group, "peers", "")...)
		}
		of[m.ID], all = d, append(all, d)
	}
	if p.hub != nil {
		d := &demand{m: p.hub, name: "the hub"}
		of[hubName], all = d, append(all, d)
	}
	for _, part := range p.exchanges() {
		if d := of[part.Cluster]; !p.opts.ReadOnly {
			d.rights = append(d.rights, rightsToWrite(part.Objects)...)
			d.rights = append(d.rights, rightsToIssue(d.m.Namespace, p.opts)...)
		}
	}
	return all
}

// checkRights refuses to begin what a missing right would interrupt. The error
// names every missing right of every cluster.
func (p *Prepared) checkRights(ctx context.Context) error { return checkDemands(ctx, p.demands()) }

func checkDemands(ctx context.Context, all []*demand) error {
	var problems []string
	for _, d := range all {
		missing, err := d.m.missing(ctx, d.rights)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if len(missing) > 0 {
			problems = append(problems, d.name+": "+strings.Join(missing, "; "))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New("the access given lacks rights, so nothing was written. " + strings.Join(problems, ". ") +
		". Ask an administrator of the cluster for them, or use a context that has them")
}

// rightsToRead are needed to check a cluster.
func rightsToRead(namespace string) []right {
	return []right{
		{verb: "list", resource: "nodes"},
		{verb: "get", resource: "configmaps", namespace: metav1.NamespaceSystem},
		{verb: "get", resource: "namespaces"},
		{verb: "get", resource: "secrets", namespace: namespace},
		{verb: "get", group: v1alpha1.GroupVersion.Group, resource: "peers"},
	}
}

// rightsToIssue are needed to give another cluster a credential.
func rightsToIssue(namespace string, opts Options) []right {
	needed := []right{
		{verb: "create", resource: "serviceaccounts", subresource: "token", namespace: namespace},
		{verb: "create", group: "authentication.k8s.io", resource: "tokenreviews"},
		{verb: "list", group: rbacv1.GroupName, resource: "roles", namespace: namespace},
	}
	if opts.Rotate {
		needed = append(needed, right{verb: "delete", resource: "serviceaccounts", namespace: namespace})
	}
	return needed
}

// rightsToApply are those for server-side apply: a patch, and a creation where
// there is nothing yet.
func rightsToApply(group, resource, namespace string) []right {
	return []right{
		{verb: "get", group: group, resource: resource, namespace: namespace},
		{verb: "create", group: group, resource: resource, namespace: namespace},
		{verb: "patch", group: group, resource: resource, namespace: namespace},
	}
}

// rightsToWrite are needed to apply objects. A Role may grant only what its
// author holds, unless the author may escalate and bind.
func rightsToWrite(objects []client.Object) []right {
	var needed []right
	for _, object := range objects {
		namespace := object.GetNamespace()
		switch object.(type) {
		case *corev1.Namespace:
			needed = append(needed, rightsToApply("", "namespaces", "")...)
		case *corev1.ServiceAccount:
			needed = append(needed, rightsToApply("", "serviceaccounts", namespace)...)
		case *rbacv1.Role:
			needed = append(needed, rightsToApply(rbacv1.GroupName, "roles", namespace)...)
			needed = append(needed, right{verb: "escalate", group: rbacv1.GroupName, resource: "roles", namespace: namespace})
		case *rbacv1.RoleBinding:
			needed = append(needed, rightsToApply(rbacv1.GroupName, "rolebindings", namespace)...)
			needed = append(needed, right{verb: "list", group: rbacv1.GroupName, resource: "rolebindings", namespace: namespace})
			needed = append(needed, right{verb: "bind", group: rbacv1.GroupName, resource: "roles", namespace: namespace})
		}
	}
	return needed
}

// missing are those of needed that the access to m does not allow, as text, each
// once.
func (m *member) missing(ctx context.Context, needed []right) ([]string, error) {
	all, err := m.allows(ctx, right{verb: "*", group: "*", resource: "*"})
	if err != nil || all {
		return nil, err
	}
	asked := map[right]bool{}
	var missing []string
	for _, r := range needed {
		if asked[r] {
			continue
		}
		asked[r] = true
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
		rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}}
	}
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			name, sub, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				allowed, err := m.allows(ctx, right{verb: verb, group: rule.APIGroups[0], resource: name, subresource: sub, namespace: namespace})
				if err != nil || !allowed {
					return false, err
				}
			}
		}
	}
	return true, nil
}

func (m *member) allows(ctx context.Context, r right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace,
		},
	}}
	if err := m.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("ask whether %s is allowed: %w", r, err)
	}
	return review.Status.Allowed, nil
}

// CheckLeave refuses to begin a Disconnect, or a Purge of the first cluster,
// that a missing right would interrupt. Clusters without RESTConfig are left out.
func CheckLeave(ctx context.Context, clusters []Cluster, purge bool, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	var all []*demand
	for i, c := range clusters {
		if c.RESTConfig == nil {
			continue
		}
		if c, err = c.withDefaults(); err != nil {
			return err
		}
		m, err := open(c, opts)
		if err != nil {
			return err
		}
		all = append(all, &demand{m, "cluster " + string(m.ID), rightsToLeave(m.Namespace, purge && i == 0)})
	}
	return checkDemands(ctx, all)
}

func rightsToLeave(namespace string, purge bool) []right {
	needed := []right{
		{verb: "list", group: rbacv1.GroupName, resource: "rolebindings"}, {verb: "list", resource: "services"},
		{verb: "list", group: serviceImport.Group, resource: "serviceimports"}, {verb: "list", group: v1alpha1.GroupVersion.Group, resource: "peers"},
		{verb: "patch", group: v1alpha1.GroupVersion.Group, resource: "peers"}, {verb: "create", group: v1alpha1.GroupVersion.Group, resource: "peers"},
	}
	for _, r := range []right{
		{resource: "secrets", namespace: namespace}, {resource: "serviceaccounts", namespace: namespace}, {resource: "namespaces"},
		{group: v1alpha1.GroupVersion.Group, resource: "peers"},
		{group: rbacv1.GroupName, resource: "roles", namespace: namespace}, {group: rbacv1.GroupName, resource: "rolebindings"},
	} {
		for _, verb := range []string{"get", "delete"} {
			r.verb = verb
			needed = append(needed, r)
		}
	}
	if !purge {
		return needed
	}
	for _, r := range []right{{resource: "services"}, {group: discoveryv1.GroupName, resource: "endpointslices"}, {group: serviceImport.Group, resource: "serviceimports"}} {
		for _, verb := range []string{"get", "list", "delete"} {
			r.verb = verb
			needed = append(needed, r)
		}
	}
	return append(needed,
		right{verb: "list", resource: "secrets", namespace: namespace},
		right{verb: "list", resource: "namespaces"},
		right{verb: "list", group: serviceExport.Group, resource: "serviceexports"},
		right{verb: "patch", group: serviceExport.Group, resource: "serviceexports", subresource: "status"},
		right{verb: "list", group: "apps", resource: "deployments", namespace: namespace},
		right{verb: "patch", group: "apps", resource: "deployments", subresource: "scale", namespace: namespace},
		right{verb: "list", resource: "pods", namespace: namespace},
	)
}
