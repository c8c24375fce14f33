// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// Prepared is a join that has passed every check and has written nothing yet.
type Prepared struct {
	opts    Options
	members []*member
	// hub is nil in a mesh. In a hub it has all objects that the hub needs.
	hub     *member
	objects []client.Object
	// peers are the Peers of all routes between members.
	peers []plannedPeer
	// addresses are those that Use set, by holder and peer.
	addresses map[route]Address
}

// route is who connects to whom. The hub is hubName.
type route struct{ holder, peer model.ClusterID }

// PrepareMesh checks that members can become peers of each other, each of all
// others. It writes nothing.
func PrepareMesh(ctx context.Context, members []Cluster, opts Options) (*Prepared, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if members, err = checkMembers(members); err != nil {
		return nil, err
	}
	if len(members) < 2 {
		return nil, errors.New("one cluster is given; expected at least two to join")
	}
	p := &Prepared{opts: opts, addresses: map[route]Address{}}
	if p.members, err = openAll(members, opts); err != nil {
		return nil, err
	}
	if err := distinct(ctx, p.members...); err != nil {
		return nil, err
	}
	if err := p.checkRights(ctx); err != nil {
		return nil, err
	}
	if err := learnAll(ctx, p.members); err != nil {
		return nil, err
	}
	if err := p.checkJoined(ctx); err != nil {
		return nil, err
	}
	err = p.eachPair(func(local, peer *member) error { return local.preflight(ctx, peer) })
	if err != nil {
		return nil, err
	}
	return p, p.planPeers(ctx)
}

// PrepareHub checks that members can become a clusterset whose exchange is hub.
// It writes nothing.
func PrepareHub(ctx context.Context, hub Hub, members []Cluster, opts Options) (*Prepared, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if members, err = checkMembers(members); err != nil {
		return nil, err
	}
	p := &Prepared{opts: opts, addresses: map[route]Address{}}
	if p.hub, err = openHub(hub, members[0].Set, opts); err != nil {
		return nil, err
	}
	if p.members, err = openAll(members, opts); err != nil {
		return nil, err
	}
	if err := distinct(ctx, p.members...); err != nil {
		return nil, err
	}
	if p.objects, err = HubObjects(hub, members); err != nil {
		return nil, err
	}
	claim(p.objects, p.members)
	if err := p.checkRights(ctx); err != nil {
		return nil, err
	}
	if err := p.hub.preflightHub(ctx, p.objects); err != nil {
		return nil, fmt.Errorf("the hub: %w", err)
	}
	if err := learnAll(ctx, p.members); err != nil {
		return nil, err
	}
	if err := p.checkJoined(ctx); err != nil {
		return nil, err
	}
	for _, m := range p.members {
		if err := m.preflightSecret(ctx, model.ExchangeSecret); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", m.ID, err)
		}
	}
	return p, p.planPeers(ctx)
}

func (p *Prepared) planPeers(ctx context.Context) error {
	return p.eachPair(func(local, peer *member) error {
		planned, err := local.planPeer(ctx, peer)
		p.peers = append(p.peers, planned)
		return err
	})
}

func openAll(clusters []Cluster, opts Options) ([]*member, error) {
	var all []*member
	for _, c := range clusters {
		m, err := open(c, opts)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// learnAll finds out the ranges of all members and refuses those that overlap.
func learnAll(ctx context.Context, all []*member) error {
	for i, m := range all {
		if err := m.learn(ctx); err != nil {
			return fmt.Errorf("cluster %s: %w", m.ID, err)
		}
		for _, other := range all[:i] {
			if err := disjoint(other, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// distinct refuses two ways to one cluster, which would make it its own peer.
func distinct(ctx context.Context, members ...*member) error {
	for i, m := range members {
		var ns corev1.Namespace
		if err := m.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &ns); err != nil {
			return fmt.Errorf("cluster %s: %s cannot be read with the access given: %w", m.ID, m.RESTConfig.Host, err)
		}
		m.uid = ns.UID
		for _, other := range members[:i] {
			if other.uid == m.uid {
				return fmt.Errorf("clusters %s and %s are one and the same (%s and %s); give the access of two clusters",
					other.ID, m.ID, other.RESTConfig.Host, m.RESTConfig.Host)
			}
		}
	}
	return nil
}

// eachPair calls f for every ordered pair of members.
func (p *Prepared) eachPair(f func(local, peer *member) error) error {
	for _, local := range p.members {
		for _, peer := range p.members {
			if peer == local {
				continue
			}
			if err := f(local, peer); err != nil {
				return fmt.Errorf("cluster %s: %w", local.ID, err)
			}
		}
	}
	return nil
}

// Route is a connection that the join makes.
type Route struct {
	// Holder is the member whose agent connects, Peer the one it reads. Peer is
	// empty if it is the hub.
	Holder, Peer model.ClusterID
}

func (r Route) key() route {
	if r.Peer == "" {
		return route{r.Holder, hubName}
	}
	return route{r.Holder, r.Peer}
}

// Routes are all connections that the join makes, in a fixed order.
func (p *Prepared) Routes() []Route {
	var all []Route
	for _, m := range p.members {
		if p.hub != nil {
			all = append(all, Route{Holder: m.ID})
			continue
		}
		for _, peer := range p.members {
			if peer != m {
				all = append(all, Route{Holder: m.ID, Peer: peer.ID})
			}
		}
	}
	return all
}

// ClusterObjects are the objects of one cluster.
type ClusterObjects struct {
	// Cluster is the member's id, or "hub".
	Cluster model.ClusterID
	Objects []client.Object
}

// Objects are all that Write applies but the Secrets with credentials, each once
// and in the order of work.
func (p *Prepared) Objects() []ClusterObjects {
	all := p.exchanges()
	for _, planned := range p.peers {
		at := slices.IndexFunc(all, func(of ClusterObjects) bool { return of.Cluster == planned.holder.ID })
		if at < 0 {
			at, all = len(all), append(all, ClusterObjects{Cluster: planned.holder.ID})
		}
		all[at].Objects = append(all[at].Objects, planned.wanted)
	}
	return all
}

// exchanges are the exchange namespaces and what lets others read them.
func (p *Prepared) exchanges() []ClusterObjects {
	if p.hub != nil {
		return []ClusterObjects{{hubName, p.objects}}
	}
	var all []ClusterObjects
	for _, m := range p.members {
		of := ClusterObjects{Cluster: m.ID}
		seen := map[string]bool{}
		for _, peer := range p.members {
			if peer == m {
				continue
			}
			objects, err := Objects(m.Cluster, peer.Cluster)
			if err != nil {
				continue // not reached: the pair has been checked
			}
			for _, object := range objects {
				if key := identity(object); !seen[key] {
					seen[key] = true
					of.Objects = append(of.Objects, object)
				}
			}
		}
		all = append(all, of)
	}
	return all
}

// identity is kind, namespace and name in one.
func identity(object client.Object) string {
	return fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object))
}

// Use sets the address that is stored for a route. Without it, it is that of the
// peer's Cluster, or of its RESTConfig.
func (p *Prepared) Use(r Route, a Address) { p.addresses[r.key()] = a }

// Write makes the join. What exists already is left as it is, so that repeating it is
// free and finishes what an earlier run began. A credential is kept while the
// API server accepts it and more than half of its lifetime is left.
func (p *Prepared) Write(ctx context.Context) error {
	for _, r := range p.Routes() {
		if err := p.resolve(r); err != nil {
			return err
		}
	}
	if p.hub != nil {
		if err := p.writeHub(ctx); err != nil {
			return err
		}
	} else if err := p.writeMesh(ctx); err != nil {
		return err
	}
	// The Peers come last: a repeated join sees by them what an interrupted one replaces.
	for _, planned := range p.peers {
		if err := planned.write(ctx); err != nil {
			return fmt.Errorf("cluster %s: %w", planned.holder.ID, err)
		}
	}
	return nil
}

func (p *Prepared) writeMesh(ctx context.Context) error {
	for _, of := range p.exchanges() {
		m := p.find(of.Cluster)
		if err := m.applyAll(ctx, of.Objects); err != nil {
			return fmt.Errorf("cluster %s: %w", of.Cluster, err)
		}
		if err := m.recordNamespaces(ctx, of.Objects); err != nil {
			return fmt.Errorf("cluster %s: %w", of.Cluster, err)
		}
	}
	return p.eachPair(func(local, peer *member) error {
		return local.trust(ctx, peer.via(p.addresses[route{local.ID, peer.ID}]))
	})
}

// resolve makes sure that a route has a valid address.
func (p *Prepared) resolve(r Route) error {
	peer := p.find(r.key().peer)
	given, used := p.addresses[r.key()]
	if used {
		peer = peer.via(given)
	}
	resolved, err := peer.withAccess()
	if err != nil {
		return err
	}
	p.addresses[r.key()] = Address{Server: resolved.Server, CAData: resolved.CAData, Source: given.Source}
	return nil
}

// checkJoined refuses to rotate what no join made: it would be a join under
// another name.
func (p *Prepared) checkJoined(ctx context.Context) error {
	if !p.opts.Rotate {
		return nil
	}
	for _, r := range p.Routes() {
		m := p.find(r.Holder)
		key := client.ObjectKey{Namespace: m.Namespace, Name: secretOf(r)}
		if err := m.client.Get(ctx, key, &corev1.Secret{}); apierrors.IsNotFound(err) {
			return fmt.Errorf("cluster %s has no Secret %s, so there is no credential to replace; run kubectl comity join first", m.ID, key)
		} else if err != nil {
			return fmt.Errorf("cluster %s: read Secret %s: %w", m.ID, key, err)
		}
	}
	return nil
}

// secretOf is the name of the Secret with the credential of a route.
func secretOf(r Route) string {
	if r.Peer == "" {
		return model.ExchangeSecret
	}
	return PeerName(r.Peer)
}

func (p *Prepared) find(id model.ClusterID) *member {
	if p.hub != nil && id == hubName {
		return p.hub
	}
	for _, m := range p.members {
		if m.ID == id {
			return m
		}
	}
	return nil
}
