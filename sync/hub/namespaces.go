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

// How long an answer about a namespace counts. A watch would need a right over
// all namespaces, so they are asked for; one that is there is asked for seldom.
const (
	presentFor  = time.Minute
	absentFor   = 10 * time.Second
	lookTimeout = 10 * time.Second
)

// standing is what is known of one namespace in the hub.
type standing struct {
	// known is false until the hub gave a definite answer.
	known bool
	// uid and problem are those of the last definite answer: a hub that does
	// not answer, or refuses for a moment while it starts, does not change what
	// it said. "" is no problem, and then uid is set.
	uid     types.UID
	problem string
	// unread is why there is no definite answer yet.
	unread  string
	checked time.Time
}

func (s standing) usable() bool { return s.known && s.problem == "" }

// namespaces asks for single namespaces in the hub and remembers the answers.
type namespaces struct {
	self   model.ClusterID
	reader client.Reader // not cached
	now    func() time.Time

	mu    sync.Mutex
	known map[string]standing
}

// last is what is known of a namespace without asking.
func (n *namespaces) last(name string) standing {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[name]
}

// doubt makes the next look ask anew.
func (n *namespaces) doubt(name string) {
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

// look asks for a namespace unless the last answer still counts.
func (n *namespaces) look(ctx context.Context, name string) standing {
	before := n.last(name)
	age, limit := n.now().Sub(before.checked), absentFor
	if before.usable() {
		limit = presentFor
	}
	if !before.checked.IsZero() && age < limit {
		return before
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var found corev1.Namespace
	err := n.reader.Get(ctx, client.ObjectKey{Name: name}, &found)
	now := n.judge(name, before, &found, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name] = now
	return now
}

// judge is what is known after an answer.
func (n *namespaces) judge(name string, before standing, found *corev1.Namespace, err error) standing {
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
