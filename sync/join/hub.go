// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// hubName is what the hub is called in steps, errors and kubeconfigs.
const hubName = "hub"

// Hub is the API server that all members use as their exchange. Nothing is
// imported there, and Comity need not run there; but it may be that of a member.
type Hub struct {
	// Namespace holds the members' accounts; DefaultNamespace if empty.
	Namespace string
	// RESTConfig is an administrator's access to the hub.
	RESTConfig *rest.Config
	// Server is the https URL by which all members reach it; that of RESTConfig
	// if empty.
	Server string
	// CAData is the PEM bundle that verifies Server; that of RESTConfig if empty.
	CAData []byte
}

// cluster is the hub in the form that all clusters have here.
func (h Hub) cluster(set string) Cluster {
	return Cluster{ID: hubName, Set: set, Namespace: h.Namespace, RESTConfig: h.RESTConfig, Server: h.Server, CAData: h.CAData}
}

// checkMembers fills in defaults and refuses what cannot be one clusterset.
func checkMembers(members []Cluster) ([]Cluster, error) {
	if len(members) == 0 {
		return nil, errors.New("no member is given; expected every cluster that uses the hub")
	}
	checked := make([]Cluster, len(members))
	for i, m := range members {
		var err error
		if checked[i], err = m.withDefaults(); err != nil {
			return nil, err
		}
		for _, earlier := range checked[:i] {
			if err := validatePair(earlier, checked[i]); err != nil {
				return nil, err
			}
		}
	}
	return checked, nil
}

// ConnectHub makes members a clusterset whose exchange is hub: one account in
// the hub for each member, which writes the member's own namespaces there and
// reads those of the others that are for it; and in each member the kubeconfig of
// its account, as Secret model.ExchangeSecret and as the Secret of each Peer. As
// with Connect, everything is looked at before the first write, and repeating it
// is free. Give all members: to add one, repeat it with one more.
func ConnectHub(ctx context.Context, hub Hub, members []Cluster, opts Options) error {
	p, err := PrepareHub(ctx, hub, members, opts)
	if err != nil {
		return err
	}
	return p.Write(ctx)
}

func openHub(hub Hub, set string, opts Options) (*member, error) {
	c, err := hub.cluster(set).withDefaults()
	if err != nil {
		return nil, fmt.Errorf("the hub: %w", err)
	}
	at, err := open(c, opts)
	if err != nil {
		return nil, fmt.Errorf("the hub: %w", err)
	}
	return at, nil
}

func (p *Prepared) writeHub(ctx context.Context) error {
	if err := p.hub.applyAll(ctx, p.objects); err != nil {
		return fmt.Errorf("the hub: %w", err)
	}
	if err := p.hub.recordNamespaces(ctx, p.objects); err != nil {
		return fmt.Errorf("the hub: %w", err)
	}
	for _, m := range p.members {
		if err := m.trustHub(ctx, p.hub.via(p.addresses[route{m.ID, hubName}]), p.members); err != nil {
			return fmt.Errorf("cluster %s: %w", m.ID, err)
		}
	}
	return nil
}

// claim notes on each member's namespaces in the hub which cluster it is: a
// second one with the same id shows by it.
func claim(objects []client.Object, members []*member) {
	for _, object := range objects {
		for _, m := range members {
			if ns, is := object.(*corev1.Namespace); is && ns.Labels[model.LabelExchangeFrom] == string(m.ID) {
				ns.Annotations = map[string]string{model.AnnotationClusterUID: string(m.uid)}
			}
		}
	}
}

func (m *member) preflightHub(ctx context.Context, objects []client.Object) error {
	kind := v1alpha1.GroupVersion.WithKind("ExportRecord")
	if _, err := m.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); apimeta.IsNoMatchError(err) {
		return fmt.Errorf("%s is not known there; apply the definitions of exchange.comity.dev (config/crd) first", kind.GroupKind())
	} else if err != nil {
		return fmt.Errorf("%s cannot be read with the access given: %w", m.RESTConfig.Host, err)
	}
	return m.preflightNamespaces(ctx, objects)
}

// trustHub stores the credential of m's account in the hub: once as that of the
// exchange, and once for each peer, which is read with it too.
func (m *member) trustHub(ctx context.Context, hub *member, all []*member) error {
	if err := m.apply(ctx, namespace(m.Namespace, nil), ""); err != nil {
		return err
	}
	kubeconfig, err := m.trustExchange(ctx, hub)
	if err != nil {
		return err
	}
	for _, peer := range all {
		if peer == m {
			continue
		}
		var existing corev1.Secret
		key := client.ObjectKey{Namespace: m.Namespace, Name: PeerName(peer.ID)}
		if err := m.client.Get(ctx, key, &existing); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read Secret %s: %w", key, err)
		}
		// The agent renews each by itself, so they need not be the same.
		mine, note := existing.Data[KubeconfigKey], ""
		keep, err := hub.accepts(ctx, MemberName(m.ID), mine)
		if err != nil {
			return err
		}
		if !keep {
			mine, note = kubeconfig, "the credential of the exchange"
		}
		if err := m.store(ctx, peer, existing, mine, note); err != nil {
			return err
		}
	}
	return nil
}

// trustExchange stores the kubeconfig by which m publishes, unless a good one is there.
func (m *member) trustExchange(ctx context.Context, hub *member) ([]byte, error) {
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta(m.Namespace, model.ExchangeSecret, nil),
		Type:       corev1.SecretTypeOpaque,
	}
	var existing corev1.Secret
	key := client.ObjectKeyFromObject(secret)
	if err := m.client.Get(ctx, key, &existing); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	kubeconfig := existing.Data[KubeconfigKey]
	keep, err := hub.accepts(ctx, MemberName(m.ID), kubeconfig)
	if err != nil {
		return nil, err
	}
	if keep && contains(existing.Labels, secret.Labels) {
		m.report(secret, Unchanged, "")
		return kubeconfig, hub.record(ctx, MemberName(m.ID), kubeconfig, true)
	}
	if m.opts.Rotate || m.replaced {
		if err := hub.recreate(ctx, MemberName(m.ID)); err != nil {
			return nil, err
		}
	}
	kubeconfig, note, err := hub.issue(ctx, MemberName(m.ID))
	if err != nil {
		return nil, err
	}
	if err := hub.record(ctx, MemberName(m.ID), kubeconfig, false); err != nil {
		return nil, err
	}
	secret.Data = map[string][]byte{KubeconfigKey: kubeconfig}
	return kubeconfig, m.apply(ctx, secret, note)
}
