// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

const (
	// checkInterval is how often the file and the namespaces are read. The kubelet
	// takes about a minute to change a mounted Secret anyway.
	checkInterval = 5 * time.Second
	// renewCheckInterval is how often the age of the token is checked.
	renewCheckInterval = time.Minute
)

// Start reads the file, and watches the namespaces of this member and its peers,
// until ctx ends. After an error the process must restart.
func (h *Hub) Start(ctx context.Context) error {
	defer h.caches.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unsubscribe := h.opts.Peers.Subscribe(func(types.NamespacedName) {}, func(model.ClusterID) { h.wakeUp() })
	defer unsubscribe()
	select {
	case <-h.opts.Peers.Listed():
	case <-ctx.Done():
		return nil
	}
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	var renewed time.Time
	logged := ""
	for first := true; ; {
		if err := h.follow(&logged); err != nil {
			return err
		}
		if h.link.problem() == nil {
			h.watchNamespaces(ctx)
			if first && h.allKnown() {
				close(h.caches.ready)
				first = false
			}
			if h.leads() && h.now().Sub(renewed) >= renewCheckInterval {
				renewed = h.now()
				h.renew(ctx)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-h.wake:
		}
	}
}

// follow reads the file and logs once what is wrong with it.
func (h *Hub) follow(logged *string) error {
	changed, err := h.link.read()
	switch {
	case errors.Is(err, errServerChanged):
		return err
	case err != nil && err.Error() != *logged:
		*logged = err.Error()
		h.opts.Log.Info("the kubeconfig of the exchange is not used", "reason", err.Error())
	case err == nil:
		*logged = ""
	}
	if changed {
		h.opts.Log.Info("the kubeconfig of the exchange was read")
	}
	return nil
}

// wanted are this member's own namespaces in the hub.
func (h *Hub) wanted() map[string]bool {
	out := map[string]bool{model.ExchangeNamespace(h.opts.Self): true}
	for _, m := range h.opts.Peers.Members() {
		out[model.ScopedExchangeNamespace(h.opts.Self, m.ID)] = true
	}
	return out
}

// allKnown reports whether it is known of every namespace whether it exists. From
// then on, an object that is in none of them does not exist.
func (h *Hub) allKnown() bool {
	for name := range h.wanted() {
		if s := h.namespaces.last(name); !s.known && s.unread == "" {
			return false
		}
	}
	return h.namespaces.last(model.ExchangeNamespace(h.opts.Self)).known
}

// watchNamespaces watches those of this member's namespaces that exist.
func (h *Hub) watchNamespaces(ctx context.Context) {
	wanted := h.wanted()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if ctx.Err() != nil {
			return
		}
		switch now := h.namespaces.read(ctx, name); {
		case now.usable():
			if err := h.caches.add(ctx, name, now.uid, h.changed.All); err != nil {
				h.opts.Log.Error(err, "namespace of the exchange")
			}
		case now.known && h.caches.remove(name):
			h.changed.All()
		}
	}
	for _, name := range h.caches.names() {
		if !wanted[name] {
			h.caches.remove(name)
			h.namespaces.forget(name)
		}
	}
}

// renew stores a new token in the Secret that the file comes from, once the one
// in use has lived long enough. Where the file comes from elsewhere, whoever
// wrote it renews it.
func (h *Hub) renew(ctx context.Context) {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: h.opts.Namespace, Name: model.ExchangeSecret}
	if err := h.local.Get(ctx, key, &secret); err != nil {
		if client.IgnoreNotFound(err) != nil {
			h.opts.Log.Info("token not renewed, trying again", "reason", err.Error())
		}
		return
	}
	if err := h.renewIn(ctx, &secret); err != nil && ctx.Err() == nil {
		h.opts.Log.Info("token not renewed, trying again", "reason", err.Error())
	}
}

func (h *Hub) renewIn(ctx context.Context, secret *corev1.Secret) error {
	// What the Secret holds may be newer than the file, which follows late.
	config, fault := kubeconfig.Sanitize(secret.Data[kubeconfig.SecretKey])
	if fault != nil {
		return fmt.Errorf("read Secret %s/%s, key %s: %s", secret.Namespace, secret.Name, kubeconfig.SecretKey, fault)
	}
	if config.Host != h.link.transport.Config().Host {
		return nil
	}
	renewed, err := remote.RenewSecret(ctx, config, remote.NewClient(h.link.transport), secret, h.now())
	if err != nil || renewed == nil {
		return err
	}
	patch := client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})
	if err := h.local.Patch(ctx, renewed, patch); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	h.opts.Log.Info("token of the exchange renewed")
	return nil
}
