// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/remote"
)

// renewCheckInterval is how often the age of the token is checked.
const renewCheckInterval = time.Minute

// Start reads the file, and watches the namespaces of this member and its peers,
// until ctx ends. After an error the process must restart.
func (h *Hub) Start(ctx context.Context) error {
	defer h.caches.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unsubscribe := h.opts.Peers.Subscribe(func(c model.MemberChange) {
		if c.What == model.MemberOther {
			h.wake.Up()
		}
	})
	defer unsubscribe()
	if !notify.AwaitClosed(ctx, h.opts.Peers.Listed()) {
		return nil
	}
	tick := time.NewTicker(h.opts.CheckInterval)
	defer tick.Stop()
	ready := sync.OnceFunc(func() { close(h.caches.ready) })
	for {
		if err := h.link.read(h.opts.Log); err != nil {
			return err
		}
		if h.link.problem() == nil {
			h.watchNamespaces(ctx)
			if h.unknown() == "" {
				ready()
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

// wanted are this member's own namespaces in the hub.
func (h *Hub) wanted() map[string]bool {
	out := map[string]bool{model.ExchangeNamespace(h.opts.Self): true}
	for _, m := range h.opts.Peers.Members() {
		out[model.ScopedExchangeNamespace(h.opts.Self, m.ID)] = true
	}
	return out
}

// unknown is one of the namespaces of which it is not known whether it exists; "" if there
// is none, and an object that is in none of them does not exist. One that this member may
// not read does not count, unless it is that for all members.
func (h *Hub) unknown() string {
	for name := range h.wanted() {
		if last := h.last(name); !last.known && (last.problem == "" || name == model.ExchangeNamespace(h.opts.Self)) {
			return name
		}
	}
	return ""
}

// watchNamespaces watches those of this member's namespaces that exist.
func (h *Hub) watchNamespaces(ctx context.Context) {
	wanted := h.wanted()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if ctx.Err() != nil {
			return
		}
		switch now := h.readNamespace(ctx, name); {
		case now.usable():
			if err := h.caches.add(ctx, name, now.uid, h.changed.All); err != nil {
				h.opts.Log.Error(err, "namespace of the exchange")
			}
		case now.known && h.caches.remove(name):
			h.changed.All()
		}
	}
	for name := range h.caches.watched() {
		if !wanted[name] {
			h.caches.remove(name)
			h.mu.Lock()
			delete(h.known, name)
			h.mu.Unlock()
		}
	}
}

// renewToken renews the token in time until ctx ends.
func (h *Hub) renewToken(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := h.renew(ctx); err != nil && ctx.Err() == nil {
			h.opts.Log.Error(err, "token not renewed, trying again")
		}
	}, renewCheckInterval)
	return nil
}

// renew stores a new token in the Secret that the file comes from, once the one
// in use has lived long enough. Where the file comes from elsewhere, whoever
// wrote it renews it.
func (h *Hub) renew(ctx context.Context) error {
	var secret corev1.Secret
	if err := h.local.Get(ctx, client.ObjectKey{Namespace: h.opts.Namespace, Name: model.ExchangeSecret}, &secret); err != nil {
		return client.IgnoreNotFound(err)
	}
	// What the Secret holds may be newer than the file, which follows late.
	renewed, err := remote.RenewSecret(ctx, h.opts.Self, &secret, h.local, h.now())
	if renewed {
		h.opts.Log.Info("token of the exchange renewed")
	}
	return err
}

// For how many intervals the state of a namespace is used before the hub is asked again.
// A watch would need a right on all namespaces, so each is read by its name.
const (
	presentFor = 12
	absentFor  = 2
)

// readTimeout bounds the request for one namespace.
const readTimeout = 10 * time.Second

// namespaceState is the state of one namespace in the hub.
type namespaceState struct {
	// known is false until the hub gave a definite answer. Before that, problem says why there is none.
	known bool
	// uid and problem are those of the last definite answer. A hub that does not
	// answer, or that denies a request while it starts, does not change them. An
	// empty problem is none, and then uid is set.
	uid     types.UID
	problem string
	checked time.Time
}

func (s namespaceState) usable() bool { return s.known && s.problem == "" }

// last is the state of a namespace as it was read last.
func (h *Hub) last(name string) namespaceState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[name]
}

// expire makes the next read of a namespace ask the hub.
func (h *Hub) expire(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, has := h.known[name]; has {
		s.checked = time.Time{}
		h.known[name] = s
	}
}

// readNamespace reads a namespace, unless its last state is recent enough.
func (h *Hub) readNamespace(ctx context.Context, name string) namespaceState {
	state := h.last(name)
	limit := absentFor * h.opts.CheckInterval
	if state.usable() {
		limit = presentFor * h.opts.CheckInterval
	}
	if !state.checked.IsZero() && h.now().Sub(state.checked) < limit {
		return state
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var found corev1.Namespace
	err := h.client.Get(ctx, client.ObjectKey{Name: name}, &found)
	switch {
	case err == nil:
		state.known, state.uid, state.problem = true, found.UID, exchange.NamespaceProblem(h.opts.Self, name, &found)
	case apierrors.IsNotFound(err):
		state.known, state.uid, state.problem = true, "", exchange.NamespaceProblem(h.opts.Self, name, nil)
	case state.known:
	case apierrors.IsForbidden(err):
		state.problem = fmt.Sprintf("exchange namespace %s in the hub may not be read by this cluster; run kubectl comity join", name)
	default:
		state.problem = fmt.Sprintf("exchange namespace %s in the hub cannot be read: %s", name, model.Bound(err.Error(), 200))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	state.checked = h.now()
	h.known[name] = state
	return state
}
