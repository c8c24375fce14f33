// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

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
	// known is false until the hub gave a definite answer.
	known bool
	// uid and problem are those of the last definite answer. A hub that does not
	// answer, or that denies a request while it starts, does not change them. An
	// empty problem is none, and then uid is set.
	uid     types.UID
	problem string
	// unread is why there is no definite answer yet.
	unread  string
	checked time.Time
}

func (s namespaceState) usable() bool { return s.known && s.problem == "" }

// namespaces reads single namespaces in the hub and remembers their state.
type namespaces struct {
	self   model.ClusterID
	reader client.Reader // not cached
	// interval is that of Options.CheckInterval.
	interval time.Duration
	now      func() time.Time

	mu    sync.Mutex
	known map[string]namespaceState
}

// last is the state of a namespace as it was read last.
func (n *namespaces) last(name string) namespaceState {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[name]
}

// expire makes the next read ask the hub.
func (n *namespaces) expire(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, has := n.known[name]; has {
		s.checked = time.Time{}
		n.known[name] = s
	}
}

func (n *namespaces) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, name)
}

// read reads a namespace, unless its last state is recent enough.
func (n *namespaces) read(ctx context.Context, name string) namespaceState {
	before := n.last(name)
	age, limit := n.now().Sub(before.checked), absentFor*n.interval
	if before.usable() {
		limit = presentFor * n.interval
	}
	if !before.checked.IsZero() && age < limit {
		return before
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var found corev1.Namespace
	err := n.reader.Get(ctx, client.ObjectKey{Name: name}, &found)
	now := n.after(name, before, &found, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name] = now
	return now
}

// after is the state after an answer of the hub.
func (n *namespaces) after(name string, before namespaceState, found *corev1.Namespace, err error) namespaceState {
	now := before
	now.checked = n.now()
	switch {
	case err == nil:
		now.known, now.uid, now.problem = true, found.UID, exchange.NamespaceProblem(n.self, name, found)
	case apierrors.IsNotFound(err):
		now.known, now.uid, now.problem = true, "", exchange.NamespaceProblem(n.self, name, nil)
	case apierrors.IsForbidden(err):
		now.unread = fmt.Sprintf("exchange namespace %s in the hub may not be read by this cluster; run kubectl comity join", name)
	default:
		now.unread = fmt.Sprintf("exchange namespace %s in the hub cannot be read: %s", name, model.Bound(err.Error(), 200))
	}
	return now
}
