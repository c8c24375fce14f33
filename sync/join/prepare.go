// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Prepared is a join that has passed every check and has written nothing yet.
type Prepared struct {
	// clusters are the hub, if there is one, and the members.
	clusters, members []*member
	// hub is nil in a mesh.
	hub *member
	// peers are the Peers of all pairs of members.
	peers []plannedPeer
	// Routes are all connections that the join makes, in a fixed order; with ReadOnly, without Candidates.
	Routes []*Route
	// Replaced are the Peers that get the UID of another cluster; only with Options.Replace.
	Replaced []Replacement
}

// Route is a connection that the join makes.
type Route struct {
	// Holder is the member whose agent connects to Peer, a member or HubID.
	Holder, Peer model.ClusterID
	// Candidates are the addresses by which Holder may reach Peer, the best first. None of
	// them has been tried.
	Candidates []Address
	// Address is the one that is stored: the first candidate, unless it is set.
	Address Address

	holder, issuer *member
	// secret is the Secret of holder in which its credential is stored.
	secret string
}

// Prepare checks that members can become a clusterset, in which each is a peer of all
// others. Each publishes in its own API server, or in that of the hub if it is not nil: there
// each gets one account, which writes the member's own namespaces and reads those of the others
// that are for it. It writes nothing. Give all members: to add one, repeat it with one more.
// Errors name cluster, object and remedy.
func Prepare(ctx context.Context, hub *Cluster, members []Cluster, opts Options) (*Prepared, error) {
	clusters, exchanges, err := Objects(hub, members...)
	if err != nil {
		return nil, err
	}
	p := &Prepared{}
	for i, c := range clusters {
		m, err := open(c, opts)
		if err != nil {
			return nil, err
		}
		if i < len(exchanges) {
			m.exchange = exchanges[i]
		}
		p.clusters = append(p.clusters, m)
	}
	if p.members = p.clusters; hub != nil {
		p.hub, p.members = p.clusters[0], p.clusters[1:]
	}
	for _, check := range []func(context.Context) error{p.identify, p.checkRights, p.checkExchanges, p.learn, p.planPeers, p.findAddresses} {
		if err := check(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// identify finds out which clusters these are.
func (p *Prepared) identify(ctx context.Context) error {
	for _, m := range p.members {
		var ns corev1.Namespace
		if err := m.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &ns); err != nil {
			return m.named(fmt.Errorf("%s cannot be read with the access given: %w", m.RESTConfig.Host, err))
		}
		m.uid = ns.UID
		if p.hub == nil {
			continue
		}
		// Each member's namespaces in the hub note which cluster it is: a second one with the same id shows by it.
		for _, object := range p.hub.exchange {
			if object.GetLabels()[model.LabelExchangeFrom] == string(m.ID) {
				object.SetAnnotations(map[string]string{model.AnnotationClusterUID: string(m.uid)})
			}
		}
	}
	return nil
}

// checkExchanges refuses a cluster that does not serve what members publish or read there, or
// where somebody else made an exchange namespace.
func (p *Prepared) checkExchanges(ctx context.Context) error {
	return each(p.clusters, func(m *member) error {
		err := m.checkKinds()
		if err == nil {
			_, _, err = m.checkNamespaces(ctx)
		}
		return err
	})
}

// Unserved are those kinds of a version that the API server does not serve. kinds are
// separated by spaces.
func Unserved(c client.Client, version, kinds string) (missing []string, err error) {
	for kind := range strings.FieldsSeq(kinds) {
		gvk := schema.FromAPIVersionAndKind(version, kind)
		if _, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); apimeta.IsNoMatchError(err) {
			missing = append(missing, kind)
		} else if err != nil {
			return nil, fmt.Errorf("read which kinds are served: %w", err)
		}
	}
	return missing, nil
}

// HubKinds are the kinds of package v1alpha1 that a hub serves. A member serves Peers too.
const HubKinds = "ExportRecord ImportRecord MemberRecord NamespaceRecord"

func (m *member) checkKinds() error {
	kinds := HubKinds
	if !m.isHub {
		kinds += " Peer"
	}
	missing, err := Unserved(m.client, v1alpha1.GroupVersion.String(), kinds)
	if err != nil || len(missing) == 0 {
		return err
	}
	return fmt.Errorf("the API server does not serve %s of %s; apply config/crd, or: helm upgrade comity oci://ghcr.io/comity-mcs/charts/comity "+
		"--namespace %s --reset-then-reuse-values --set crds.enabled=true", strings.Join(missing, ", "), v1alpha1.GroupVersion, m.Namespace)
}

// learn finds out the ranges of all members and refuses those that overlap.
func (p *Prepared) learn(ctx context.Context) error {
	for i, m := range p.members {
		if err := m.named(m.learn(ctx)); err != nil {
			return err
		}
		for _, other := range p.members[:i] {
			if overlap := Overlap(other.ID, m.ID, other.ranges, m.ranges); overlap != "" && !m.opts.AllowOverlap {
				return fmt.Errorf("%s; give one of the two clusters another range, or pass --allow-overlap if no exported Pod lies in it", overlap)
			}
		}
	}
	return nil
}

// checkNamespaces refuses those of m's exchange that somebody else made under the same name. It
// gives the UIDs of the exchange namespaces that are there, and the Roles that record them.
func (m *member) checkNamespaces(ctx context.Context) (uids map[string]types.UID, recorded []rbacv1.Role, err error) {
	uids = map[string]types.UID{}
	for _, object := range m.exchange {
		wanted, ok := object.(*corev1.Namespace)
		if !ok {
			continue
		}
		var found corev1.Namespace
		if err := m.get(ctx, "", wanted.Name, &found); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, nil, err
		}
		if found.DeletionTimestamp != nil {
			return nil, nil, fmt.Errorf("namespace %s is being deleted; wait until it is gone, then join again", wanted.Name)
		}
		if uid, was := wanted.Annotations[model.AnnotationClusterUID], found.Annotations[model.AnnotationClusterUID]; uid != "" && was != "" && uid != was && !m.opts.Replace {
			return nil, nil, reused("namespace "+wanted.Name, wanted.Labels[model.LabelExchangeFrom], was, uid)
		}
		for _, key := range []string{model.LabelExchangeFrom, model.LabelExchangeTo} {
			if found.Labels[key] != wanted.Labels[key] {
				return nil, nil, fmt.Errorf("namespace %s exists with label %s=%q, expected %q; remove it or choose another cluster id",
					wanted.Name, key, found.Labels[key], wanted.Labels[key])
			}
		}
		if wanted.Labels[model.LabelExchangeFrom] == "" {
			continue
		}
		if len(uids) == 0 {
			var roles rbacv1.RoleList // that joins gave to accounts in Comity's namespace
			if err := m.client.List(ctx, &roles, client.InNamespace(m.Namespace), client.MatchingLabels{managedByLabel: FieldOwner}); err != nil {
				return nil, nil, err
			}
			recorded = roles.Items
		}
		if err := m.refuseForeign(ctx, &found, recorded); err != nil {
			return nil, nil, err
		}
		uids[found.Name] = found.UID
	}
	return uids, recorded, nil
}

// preflightSecret refuses one that somebody else made, and to rotate one that no join made:
// it would be a join under another name.
func (m *member) preflightSecret(ctx context.Context, name string) error {
	found, err := m.secret(ctx, name)
	switch {
	case err != nil:
		return err
	case found.Name == "" && m.opts.Rotate:
		return fmt.Errorf("there is no Secret %s/%s; run kubectl comity join first", m.Namespace, name)
	case found.Name != "" && found.Labels[managedByLabel] != FieldOwner:
		return fmt.Errorf("the Secret %s/%s was not made by a join; rename or delete it", m.Namespace, name)
	}
	return nil
}

// planPeers plans the Peers and the Routes of every member.
func (p *Prepared) planPeers(ctx context.Context) error {
	return each(p.members, func(local *member) error {
		reach := func(issuer *member, secret string) error {
			p.Routes = append(p.Routes, &Route{Holder: local.ID, Peer: issuer.ID, holder: local, issuer: issuer, secret: secret})
			return local.preflightSecret(ctx, secret)
		}
		secret := model.ExchangeSecret // by which local also reads each of its peers in the hub
		if p.hub != nil {
			if err := reach(p.hub, secret); err != nil {
				return err
			}
		}
		for _, peer := range model.Without(p.members, func(m *member) bool { return m == local }) {
			if p.hub == nil {
				secret = model.PeerName(peer.ID)
				if err := reach(peer, secret); err != nil {
					return err
				}
			}
			planned, err := local.planPeer(ctx, peer, secret)
			if err != nil {
				return err
			}
			p.peers = append(p.peers, planned)
			if planned.replaces() {
				p.Replaced = append(p.Replaced, Replacement{local.ID, peer.ID, planned.found.Spec.ClusterUID, peer.uid})
			}
		}
		return nil
	})
}

// AnnotationCluster names, on an object of Objects, the cluster that it is for.
const AnnotationCluster = "comity.dev/cluster"

// Objects are all that Write applies but the Secrets with credentials, each once and in the
// order of work. Comity's own namespace is not among those of a member, where Comity runs: a
// tool that prunes what it applied would delete the agent with it.
func (p *Prepared) Objects() (all []*unstructured.Unstructured) {
	for _, m := range p.clusters {
		objects := slices.Clone(m.exchange)
		for _, planned := range p.peers {
			if planned.holder == m {
				objects = append(objects, planned.wanted)
			}
		}
		for _, object := range objects {
			if _, is := object.(*corev1.Namespace); is && object.GetName() == m.Namespace && !m.isHub {
				continue
			}
			applied := m.toApply(object)
			applied.SetAnnotations(labels.Merge(applied.GetAnnotations(), labels.Set{AnnotationCluster: string(m.ID)}))
			all = append(all, applied)
		}
	}
	return all
}

// Write makes the join. What exists already is left as it is, so that repeating it is
// free and finishes what an earlier run began. A credential is kept while the
// API server accepts it and the agent would not renew it.
func (p *Prepared) Write(ctx context.Context) error {
	if err := each(p.clusters, func(m *member) error {
		for _, object := range m.exchange {
			if err := m.apply(ctx, object, ""); err != nil {
				return err
			}
		}
		return m.recordNamespaces(ctx)
	}); err != nil {
		return err
	}
	for _, r := range p.Routes {
		if err := r.holder.named(r.trust(ctx)); err != nil {
			return err
		}
	}
	// The Peers come last: a repeated join sees by them what an interrupted one replaces.
	for _, planned := range p.peers {
		if err := planned.holder.named(planned.write(ctx)); err != nil {
			return err
		}
	}
	return nil
}
