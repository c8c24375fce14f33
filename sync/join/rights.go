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

// demand is what the access to one cluster must allow.
type demand struct {
	m      *member
	rights []right
}

// need adds rights. resources and verbs are separated by spaces.
func (d *demand) need(namespace, group, resources, verbs string) {
	for resource := range strings.FieldsSeq(resources) {
		for verb := range strings.FieldsSeq(verbs) {
			d.rights = append(d.rights, right{verb, group, resource, namespace})
		}
	}
}

// applyVerbs are those for server-side apply: a patch, and a creation where there is
// nothing yet.
const applyVerbs = "get create patch"

// checkRights refuses to begin what a missing right would interrupt. The error
// names every missing right of every cluster.
func (p *Prepared) checkRights(ctx context.Context) error {
	of := map[*member]*demand{}
	var all []*demand
	for _, m := range p.members {
		of[m] = &demand{m: m}
		all = append(all, of[m])
		of[m].toRead()
		if !p.opts.ReadOnly {
			of[m].need("", "", "namespaces", applyVerbs)
			of[m].need(m.Namespace, "", "secrets", applyVerbs)
			of[m].need("", v1alpha1.GroupVersion.Group, "peers", applyVerbs)
		}
	}
	if p.hub != nil {
		of[p.hub] = &demand{m: p.hub}
		all = append(all, of[p.hub])
	}
	for _, part := range p.exchanges {
		if !p.opts.ReadOnly {
			of[p.find(part.Cluster)].toWrite(part.Objects)
		}
	}
	return checkDemands(ctx, all)
}

func checkDemands(ctx context.Context, all []*demand) error {
	var problems []string
	for _, d := range all {
		missing, err := d.missing(ctx)
		if err != nil {
			return d.m.errorf("%w", err)
		}
		if len(missing) > 0 {
			problems = append(problems, d.m.errorf("%s", strings.Join(missing, "; ")).Error())
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New("the access given lacks rights, so nothing was written. " + strings.Join(problems, ". ") +
		". Ask an administrator of the cluster for them, or use a context that has them")
}

// toRead are the rights to check a cluster.
func (d *demand) toRead() {
	d.need("", "", "nodes", "list")
	d.need(metav1.NamespaceSystem, "", "configmaps", "get")
	d.need("", "", "namespaces", "get")
	d.need(d.m.Namespace, "", "secrets", "get")
	d.need("", v1alpha1.GroupVersion.Group, "peers", "get")
}

// toWrite are the rights to apply objects, and to give other clusters credentials. A Role may
// grant only what its author holds, unless the author may escalate and bind.
func (d *demand) toWrite(objects []client.Object) {
	for _, object := range objects {
		namespace := object.GetNamespace()
		switch object.(type) {
		case *corev1.Namespace:
			d.need("", "", "namespaces", applyVerbs)
		case *corev1.ResourceQuota:
			d.need(namespace, "", "resourcequotas", applyVerbs)
		case *corev1.ServiceAccount:
			d.need(namespace, "", "serviceaccounts", applyVerbs)
		case *rbacv1.Role:
			d.need(namespace, rbacv1.GroupName, "roles", applyVerbs+" escalate")
		case *rbacv1.RoleBinding:
			d.need(namespace, rbacv1.GroupName, "rolebindings", applyVerbs+" list")
			d.need(namespace, rbacv1.GroupName, "roles", "bind")
		}
	}
	d.need(d.m.Namespace, "", "serviceaccounts/token", "create")
	d.need("", "authentication.k8s.io", "tokenreviews", "create")
	d.need(d.m.Namespace, rbacv1.GroupName, "roles", "list")
	if d.m.opts.Rotate {
		d.need(d.m.Namespace, "", "serviceaccounts", "delete")
	}
}

// missing are the rights that the access does not allow, as text, each once.
func (d *demand) missing(ctx context.Context) (missing []string, err error) {
	all, err := d.m.allows(ctx, right{verb: "*", group: "*", resource: "*"})
	if err != nil || all {
		return nil, err
	}
	asked := map[right]bool{}
	for _, r := range d.rights {
		if asked[r] {
			continue
		}
		asked[r] = true
		allowed, err := d.m.allows(ctx, r)
		if err == nil && !allowed && (r.verb == "escalate" || r.verb == "bind") {
			allowed, err = d.m.holdsAll(ctx, r.namespace)
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

// CheckLeave refuses to begin a Disconnect, or a Purge of the first cluster,
// that a missing right would interrupt. Clusters without RESTConfig are left out.
func CheckLeave(ctx context.Context, clusters []Cluster, purge bool, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	var all []*demand
	for i, c := range clusters {
		m, err := openLive(c, opts)
		if err != nil {
			return err
		}
		if m != nil {
			d := &demand{m: m}
			d.toLeave(purge && i == 0)
			all = append(all, d)
		}
	}
	return checkDemands(ctx, all)
}

// toLeave are the rights for Disconnect, and for Purge.
func (d *demand) toLeave(purge bool) {
	namespace := d.m.Namespace
	d.need("", rbacv1.GroupName, "rolebindings", "list get delete")
	d.need("", "", "services", "list")
	d.need("", serviceImport.Group, "serviceimports", "list")
	d.need("", v1alpha1.GroupVersion.Group, "peers", "list get create patch delete")
	d.need("", "", "namespaces", "get delete")
	d.need(namespace, "", "secrets serviceaccounts", "get delete")
	d.need(namespace, rbacv1.GroupName, "roles", "get delete")
	if !purge {
		return
	}
	d.need("", "", "services", "get delete")
	d.need("", discoveryv1.GroupName, "endpointslices", "get list delete")
	d.need("", serviceImport.Group, "serviceimports", "get delete")
	d.need("", serviceExport.Group, "serviceexports", "list")
	d.need("", serviceExport.Group, "serviceexports/status", "patch")
	d.need("", "", "namespaces", "list")
	d.need(namespace, "", "secrets pods", "list")
	d.need(namespace, "apps", "deployments", "list")
	d.need(namespace, "apps", "deployments/scale", "patch")
}
