// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/bench/fleet"
	"github.com/comity-mcs/comity/test/bench/simulated"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/install"
)

// heartbeat is how often a simulated member renews its Lease, as an agent does by default.
const heartbeat = 10 * time.Second

// crowd is the measured member of a clusterset, and the simulated ones.
type crowd struct {
	*bench
	world  simulated.World
	member *fleet.Member
	// exchange is where the member publishes: itself, or the hub, where the others publish too.
	exchange *fleet.Member
	hub      bool
	// restFor and changesFor are how long an idle agent is measured, and changes are made.
	restFor, changesFor time.Duration
	server              *simulated.Server // of the others; nil with a hub
	readers             *simulated.Readers
	dir                 string
}

func (c *crowd) close() (err error) {
	if c.server != nil {
		err = c.server.Close()
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// prepare has everybody publish, while the agent of the member is stopped.
func (c *crowd) prepare(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", "comity-scale-"); err != nil {
		return err
	}
	own, err := c.exportOwn(ctx)
	if err != nil {
		return err
	}
	var flags []string
	if c.hub {
		flags = []string{"--exchange-kubeconfig", c.kubeconfig()}
	}
	if err := c.member.StopAgentFor(flags...); err != nil {
		return err
	}
	c.say("making the exchange namespaces of %d members", c.world.Members)
	if err := c.makeExchange(ctx); err != nil {
		return err
	}
	c.say("having the others publish")
	if err := c.publish(ctx, own); err != nil {
		return err
	}
	c.say("having the others watch")
	if c.readers, err = c.world.Read(ctx, c.exchange.RESTConfig(), c.hub); err != nil {
		return err
	}
	c.say("%d watches are open, of %d", c.readers.Open(), c.readers.Needed)
	if err := c.each(ctx, 1, c.world.Members, "Peers", c.makePeer); err != nil {
		return err
	}
	go c.beat(ctx)
	return nil
}

// kubeconfig is the file by which the member reads the others.
func (c *crowd) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// exportOwn makes the exports of the member.
func (c *crowd) exportOwn(ctx context.Context) (map[types.NamespacedName]types.UID, error) {
	for _, name := range c.world.Namespaces() {
		if err := c.member.CreateNamespace(ctx, name); err != nil {
			return nil, err
		}
	}
	own := c.exports(func(e simulated.Export) bool { return e.Of == 0 })
	err := c.each(ctx, 0, len(own), "exports", func(ctx context.Context, n int) error {
		if err := c.member.CreateSlice(ctx, own[n].Source(0)); err != nil {
			return err
		}
		return c.member.Export(ctx, own[n].Key.Namespace, own[n].Key.Name)
	})
	if err != nil {
		return nil, err
	}
	var stored mcsv1beta1.ServiceExportList
	if err := c.member.Exchange.List(ctx, &stored); err != nil {
		return nil, err
	}
	uids := map[types.NamespacedName]types.UID{}
	for i := range stored.Items {
		uids[client.ObjectKeyFromObject(&stored.Items[i])] = stored.Items[i].UID
	}
	return uids, nil
}

// exports are those that are wanted.
func (c *crowd) exports(wanted func(simulated.Export) bool) []simulated.Export {
	return slices.DeleteFunc(c.world.All(), func(e simulated.Export) bool { return !wanted(e) })
}

// makeExchange makes what a join makes where the member publishes, and how it reads the others.
func (c *crowd) makeExchange(ctx context.Context) error {
	var members []join.Cluster
	for n := range c.world.Members {
		members = append(members, join.Cluster{ID: c.world.ID(n), Set: c.world.Set, Namespace: install.Namespace, ServiceAccount: install.Account})
	}
	var hub *join.Cluster
	if c.hub {
		hub = &join.Cluster{ID: join.HubID, Set: c.world.Set, Namespace: install.Namespace}
	}
	_, all, err := join.Objects(hub, members...)
	if err != nil {
		return err
	}
	objects := slices.DeleteFunc(slices.Clone(all[0]), c.isOfOthers) // those of the member are the first
	namespaces := slices.IndexFunc(objects, func(o client.Object) bool { _, is := o.(*corev1.Namespace); return !is })
	create := func(objects []client.Object) error {
		return c.each(ctx, 0, len(objects), "objects of the exchange", func(ctx context.Context, n int) error {
			err := c.exchange.Exchange.Create(ctx, objects[n])
			if apierrors.IsAlreadyExists(err) { // Comity's own namespace
				return nil
			}
			return err
		})
	}
	if err := errors.Join(create(objects[:namespaces]), create(objects[namespaces:])); err != nil {
		return err
	}
	if c.hub {
		return clusters.ServiceAccountKubeconfig(ctx, c.exchange.Cluster, install.Namespace, model.MemberName(c.world.Measured), c.kubeconfig())
	}
	if c.server, err = simulated.Serve(); err != nil {
		return err
	}
	return clusters.WriteKubeconfig(c.kubeconfig(), "simulated", c.server.URL, c.server.CA, "", &clientcmdapi.AuthInfo{Token: "simulated"})
}

// isOfOthers reports whether an object of a hub does not concern the member: what the others
// write and read there as administrator. No controller of the hub counts quotas.
func (c *crowd) isOfOthers(o client.Object) bool {
	if !c.hub {
		return false
	}
	account := model.MemberName(c.world.Measured)
	in := o.GetNamespace()
	switch o.(type) {
	case *corev1.ResourceQuota:
		return true
	case *corev1.Namespace:
		in = o.GetName()
	}
	if in == install.Namespace {
		_, isNamespace := o.(*corev1.Namespace)
		return !isNamespace && o.GetName() != account
	}
	for n := range c.world.Members {
		id := c.world.ID(n)
		switch in {
		case model.ExchangeNamespace(c.world.Measured), model.ScopedExchangeNamespace(c.world.Measured, id), model.ScopedExchangeNamespace(id, c.world.Measured):
			return false
		case model.ExchangeNamespace(id):
			_, isBinding := o.(*rbacv1.RoleBinding)
			return isBinding && o.GetName() != account
		}
	}
	return true
}

// publish has the others publish what they do.
func (c *crowd) publish(ctx context.Context, own map[types.NamespacedName]types.UID) error {
	err := c.each(ctx, 1, c.world.Members, "members", func(ctx context.Context, n int) error {
		for _, object := range c.world.Of(n, own) {
			if err := c.put(ctx, object); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	others := c.exports(func(e simulated.Export) bool { return e.Of != 0 })
	return c.each(ctx, 0, len(others), "exports", func(ctx context.Context, n int) error {
		return errors.Join(c.put(ctx, c.world.Record(others[n])), c.put(ctx, c.world.Slice(others[n], 0)))
	})
}

// put publishes an object of another member.
func (c *crowd) put(ctx context.Context, object client.Object) error {
	if c.server != nil {
		return c.server.Put(object)
	}
	object.SetManagedFields(nil)
	err := c.exchange.Exchange.Create(ctx, object)
	if err != nil {
		return fmt.Errorf("create %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// makePeer makes the Peer of another member, as a join does.
func (c *crowd) makePeer(ctx context.Context, n int) error {
	id := c.world.ID(n)
	kubeconfig, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: model.PeerName(id)}, Data: map[string][]byte{join.KubeconfigKey: kubeconfig},
	}
	return errors.Join(c.member.Exchange.Create(ctx, secret), c.member.Exchange.Create(ctx, &exchangev1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: string(id), Labels: map[string]string{model.LabelClusterID: string(id), model.LabelClusterSet: c.world.Set}},
		Spec: exchangev1alpha1.PeerSpec{
			ClusterSet: c.world.Set, ClusterUID: c.world.UID(n), KubeconfigSecret: secret.Name, AcceptedCIDRs: []string{fleet.Addresses.String()},
		},
	}))
}

// beat renews the Leases of the others, spread over the time between two heartbeats.
func (c *crowd) beat(ctx context.Context) {
	others := c.world.Members - 1
	tick := time.NewTicker(heartbeat / time.Duration(others))
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		lease := c.world.Lease(1 + n%others)
		if c.server != nil {
			_ = c.server.Put(lease) // the next one comes soon
		} else if stored, err := c.exchange.Typed.CoordinationV1().Leases(lease.Namespace).Get(ctx, lease.Name, metav1.GetOptions{}); err == nil {
			stored.Spec.RenewTime = lease.Spec.RenewTime
			_, _ = c.exchange.Typed.CoordinationV1().Leases(lease.Namespace).Update(ctx, stored, metav1.UpdateOptions{})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// hubWrites are those of the agent in the hub; none without one.
func (c *crowd) hubWrites(since time.Time) ([]controlplane.Write, error) {
	if !c.hub {
		return nil, nil
	}
	return c.exchange.AgentWrites(since)
}

// changeOne changes the slice of one export in its cluster.
func (c *crowd) changeOne(ctx context.Context, e simulated.Export, n int) error {
	if e.Of != 0 && c.server != nil {
		return c.server.Put(c.world.Slice(e, n))
	}
	in, slice := c.member, e.Source(n)
	if e.Of != 0 {
		in, slice = c.exchange, c.world.Slice(e, n)
		slice.UID, slice.ManagedFields, slice.CreationTimestamp = "", nil, metav1.Time{}
	}
	_, err := in.Typed.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{})
	return err
}
