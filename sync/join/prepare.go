// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Prepared is a join that has passed every check and has written nothing yet.
type Prepared struct {
	opts    Options
	members []*member
	// hub is nil in a mesh.
	hub *member
	// peers are the Peers of all routes between members.
	peers []plannedPeer
	// addresses are those that Use set.
	addresses map[Route]Address
}

// Route is a connection that the join makes: from the agent of Holder to Peer, a member or
// HubID.
type Route struct{ Holder, Peer model.ClusterID }

// Prepare checks that members can become a clusterset, in which each is a peer of all
// others. Each publishes in its own API server, or in that of the hub if it is not nil: there
// each gets one account, which writes the member's own namespaces and reads those of the others
// that are for it. It writes nothing. Give all members: to add one, repeat it with one more.
// Errors name cluster, object and remedy.
func Prepare(ctx context.Context, hub *Cluster, members []Cluster, opts Options) (*Prepared, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Prepared{opts: opts, addresses: map[Route]Address{}}
	if err := p.open(hub, members); err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context) error{p.identify, p.checkRights, p.checkKinds, p.learn, p.checkNamespaces, p.planPeers} {
		if err := check(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// open prepares a client for each cluster, and finds out what each needs as an exchange.
func (p *Prepared) open(hub *Cluster, members []Cluster) error {
	hub, members, err := checked(hub, members)
	if err != nil {
		return err
	}
	exchanges, err := Objects(hub, members...)
	if err != nil {
		return err
	}
	for i, c := range members {
		m, err := open(c, p.opts)
		if err != nil {
			return err
		}
		if hub == nil {
			m.exchange = exchanges[i]
		}
		p.members = append(p.members, m)
	}
	if hub != nil {
		if p.hub, err = open(*hub, p.opts); err == nil {
			p.hub.exchange = exchanges[0]
		}
	}
	return err
}

// identify refuses two ways to one cluster, which would make it its own peer.
func (p *Prepared) identify(ctx context.Context) error {
	for i, m := range p.members {
		var ns corev1.Namespace
		if err := m.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &ns); err != nil {
			return m.named(fmt.Errorf("%s cannot be read with the access given: %w", m.RESTConfig.Host, err))
		}
		m.uid = ns.UID
		for _, other := range p.members[:i] {
			if other.uid == m.uid {
				return fmt.Errorf("clusters %s and %s are one and the same (%s and %s)",
					other.ID, m.ID, other.RESTConfig.Host, m.RESTConfig.Host)
			}
		}
	}
	if p.hub == nil {
		return nil
	}
	// Each member's namespaces in the hub note which cluster it is: a second one with the same id shows by it.
	for _, object := range p.hub.exchange {
		if from := object.GetLabels()[model.LabelExchangeFrom]; from != "" {
			object.SetAnnotations(map[string]string{model.AnnotationClusterUID: string(p.find(model.ClusterID(from)).uid)})
		}
	}
	return nil
}

// checkKinds refuses a cluster that does not serve what members publish or read there, or
// where the Secret for the hub is somebody else's.
func (p *Prepared) checkKinds(ctx context.Context) error {
	return each(p.clusters(), func(m *member) error {
		err := m.checkKinds()
		if err == nil && p.hub != nil && !m.isHub {
			err = m.preflightSecret(ctx, model.ExchangeSecret)
		}
		return err
	})
}

func (m *member) checkKinds() error {
	var missing []string
	for _, kind := range []string{"ExportRecord", "ImportRecord", "MemberRecord", "NamespaceRecord", "Peer"} {
		gvk := v1alpha1.GroupVersion.WithKind(kind)
		_, err := m.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		switch {
		case apimeta.IsNoMatchError(err) && (!m.isHub || kind != "Peer"):
			missing = append(missing, kind)
		case err != nil && !apimeta.IsNoMatchError(err):
			return fmt.Errorf("read which kinds are served: %w", err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the API server does not serve %s of %s; apply config/crd, or: helm upgrade comity oci://ghcr.io/comity-mcs/charts/comity "+
		"--namespace %s --reset-then-reuse-values --set crds.enabled=true", strings.Join(missing, ", "), v1alpha1.GroupVersion, m.Namespace)
}

// clusters are the hub, if there is one, and the members.
func (p *Prepared) clusters() []*member {
	if p.hub == nil {
		return p.members
	}
	return append([]*member{p.hub}, p.members...)
}

// learn finds out the ranges of all members and refuses those that overlap.
func (p *Prepared) learn(ctx context.Context) error {
	for i, m := range p.members {
		if err := m.named(m.learn(ctx)); err != nil {
			return err
		}
		for _, other := range p.members[:i] {
			if err := disjoint(other, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// secretOf is the name of the Secret with the credential of a route.
func secretOf(r Route) string {
	if r.Peer == HubID {
		return model.ExchangeSecret
	}
	return model.PeerName(r.Peer)
}

// checkNamespaces refuses those that somebody else made under the same name.
func (p *Prepared) checkNamespaces(ctx context.Context) error {
	return each(p.clusters(), func(m *member) error { return m.checkNamespaces(ctx) })
}

func (m *member) checkNamespaces(ctx context.Context) error {
	roles := sync.OnceValues(func() ([]rbacv1.Role, error) { return m.rolesOfAccounts(ctx) })
	for _, object := range m.exchange {
		wanted, ok := object.(*corev1.Namespace)
		if !ok {
			continue
		}
		var found corev1.Namespace
		if err := m.get(ctx, "", wanted.Name, &found); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return err
		}
		if found.DeletionTimestamp != nil {
			return fmt.Errorf("namespace %s is being deleted; wait until it is gone, then join again", wanted.Name)
		}
		if uid, was := wanted.Annotations[model.AnnotationClusterUID], found.Annotations[model.AnnotationClusterUID]; uid != "" && was != "" && uid != was && !m.opts.Replace {
			return reused("namespace "+wanted.Name, wanted.Labels[model.LabelExchangeFrom], was, uid)
		}
		for _, key := range []string{model.LabelExchangeFrom, model.LabelExchangeTo} {
			if found.Labels[key] != wanted.Labels[key] {
				return fmt.Errorf("namespace %s exists with label %s=%q, expected %q; remove it or choose another cluster id",
					wanted.Name, key, found.Labels[key], wanted.Labels[key])
			}
		}
		if wanted.Labels[model.LabelExchangeFrom] != "" {
			recorded, err := roles()
			if err != nil {
				return err
			}
			if err := m.refuseForeign(ctx, &found, recorded); err != nil {
				return err
			}
		}
	}
	return nil
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

func (p *Prepared) planPeers(ctx context.Context) error {
	return each(p.members, func(local *member) error {
		for _, peer := range p.members {
			if peer == local {
				continue
			}
			planned, err := local.planPeer(ctx, peer)
			if err != nil {
				return err
			}
			p.peers = append(p.peers, planned)
		}
		return nil
	})
}

// Routes are all connections that the join makes, in a fixed order.
func (p *Prepared) Routes() []Route {
	var all []Route
	for _, m := range p.members {
		if p.hub != nil {
			all = append(all, Route{m.ID, HubID})
			continue
		}
		for _, peer := range p.members {
			if peer != m {
				all = append(all, Route{m.ID, peer.ID})
			}
		}
	}
	return all
}

// AnnotationCluster names, on an object of Objects, the cluster that it is for.
const AnnotationCluster = "comity.dev/cluster"

// Objects are all that Write applies but the Secrets with credentials, each once and in the
// order of work. Comity's own namespace is not among those of a member, where Comity runs: a
// tool that prunes what it applied would delete the agent with it.
func (p *Prepared) Objects() (all []*unstructured.Unstructured) {
	for _, m := range p.clusters() {
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

// Use sets the address that is stored for a route. Without it, it is the first of the
// Candidates.
func (p *Prepared) Use(r Route, a Address) { p.addresses[r] = a }

// Write makes the join. What exists already is left as it is, so that repeating it is
// free and finishes what an earlier run began. A credential is kept while the
// API server accepts it and more than half of its lifetime is left.
func (p *Prepared) Write(ctx context.Context) error {
	if err := p.Resolve(ctx); err != nil {
		return err
	}
	if err := each(p.clusters(), func(m *member) error {
		for _, object := range m.exchange {
			if err := m.apply(ctx, object, ""); err != nil {
				return err
			}
		}
		return m.recordNamespaces(ctx)
	}); err != nil {
		return err
	}
	for _, r := range p.Routes() {
		if err := p.find(r.Holder).named(p.trust(ctx, r)); err != nil {
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

// Resolve finds an address for each route for which none is set.
func (p *Prepared) Resolve(ctx context.Context) error {
	for _, r := range p.Routes() {
		if _, used := p.addresses[r]; used {
			continue
		}
		candidates, err := p.Candidates(ctx, r)
		if err != nil {
			return err
		}
		p.Use(r, candidates[0])
	}
	return nil
}

// trust stores the credential of one route. In a hub it is also the one by which the member
// reads each of its peers there.
func (p *Prepared) trust(ctx context.Context, r Route) error {
	holder, reached := p.find(r.Holder), *p.find(r.Peer)
	reached.Server, reached.CAData = p.addresses[r].Server, p.addresses[r].CAData
	if p.hub == nil {
		return holder.trust(ctx, &reached, model.PeerName(holder.ID), model.PeerName(r.Peer))
	}
	if err := holder.apply(ctx, namespace(holder.Namespace, nil), ""); err != nil {
		return err
	}
	secrets := []string{model.ExchangeSecret}
	for _, m := range p.members {
		if m != holder {
			secrets = append(secrets, model.PeerName(m.ID))
		}
	}
	return holder.trust(ctx, &reached, model.MemberName(holder.ID), secrets...)
}

func (p *Prepared) find(id model.ClusterID) *member {
	if id == HubID && p.hub != nil {
		return p.hub
	}
	return p.members[slices.IndexFunc(p.members, func(m *member) bool { return m.ID == id })]
}
