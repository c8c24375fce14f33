// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// names of the Services; web-4 is headless in both clusters.
var names = []string{"web-0", "web-1", "web-2", "web-3", "web-4", "web-5"}

// step is one change that a user makes.
type step func(context.Context) error

// where is one Service in one cluster.
type where struct{ cluster, name string }

// state is what a user wants of one Service in one cluster.
type state struct {
	service  bool
	exported bool
	scope    string
	slices   map[string][]string // name → addresses
}

// script makes random changes in one namespace of a and b, and knows what they
// come to.
type script struct {
	namespace string
	random    *rand.Rand
	wanted    map[where]*state
}

func newScript(namespace string, random *rand.Rand) *script {
	s := &script{namespace: namespace, random: random, wanted: map[where]*state{}}
	for _, cluster := range []string{"a", "b"} {
		for _, name := range names {
			s.wanted[where{cluster, name}] = &state{slices: map[string][]string{}}
		}
	}
	return s
}

// next draws changes and gives what makes them.
func (s *script) next(count int) []step {
	var steps []step
	for range count {
		at := where{[]string{"a", "b"}[s.random.IntN(2)], names[s.random.IntN(len(names))]}
		steps = append(steps, s.change(at, s.wanted[at])...)
	}
	return steps
}

// change is one random change, of which only those that make sense are drawn.
func (s *script) change(at where, now *state) []step {
	switch roll := s.random.IntN(10); {
	case !now.service:
		now.service = true
		return append([]step{putService(s.namespace, at)}, s.endpoints(at, now)...)
	case !now.exported && roll < 7:
		now.exported, now.scope = true, s.scope(at)
		return []step{putExport(s.namespace, at, now.scope)}
	case roll < 6:
		return s.endpoints(at, now)
	case roll < 7 && now.exported:
		now.scope = s.scope(at)
		return []step{putExport(s.namespace, at, now.scope)}
	case roll < 9 && now.exported:
		now.exported = false
		return []step{drop(at, export(s.namespace, at.name))}
	}
	gone := []step{drop(at, service(s.namespace, at.name))}
	for _, slice := range slices.Sorted(maps.Keys(now.slices)) {
		gone = append(gone, drop(at, endpoints(s.namespace, at.name, slice)))
	}
	now.service, now.slices = false, map[string][]string{}
	return gone
}

// scope is every cluster, mostly, or the other one of a and b.
func (s *script) scope(at where) string {
	if s.random.IntN(3) > 0 {
		return ""
	}
	return map[string]string{"a": "b", "b": "a"}[at.cluster]
}

// endpoints writes or removes one of three slices.
func (s *script) endpoints(at where, now *state) []step {
	slice := fmt.Sprintf("%s-%d", at.name, s.random.IntN(3))
	if _, there := now.slices[slice]; there && s.random.IntN(4) == 0 {
		delete(now.slices, slice)
		return []step{drop(at, endpoints(s.namespace, at.name, slice))}
	}
	var addresses []string
	for range s.random.IntN(4) {
		addresses = append(addresses, newAddress())
	}
	now.slices[slice] = addresses
	return []step{putSlice(s.namespace, at, slice, addresses)}
}

// again makes what the script came to in another namespace, from nothing. The
// exports are made in the order in which they were made here, since the oldest
// one decides where exports differ.
func (s *script) again(ctx context.Context, namespace string) []step {
	GinkgoHelper()
	var steps []step
	order := slices.SortedFunc(maps.Keys(s.wanted), func(a, b where) int { return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.name, b.name)) })
	made := map[where]time.Time{}
	for _, at := range order {
		now := s.wanted[at]
		if now.service {
			steps = append(steps, putService(namespace, at))
		}
		for _, slice := range slices.Sorted(maps.Keys(now.slices)) {
			steps = append(steps, putSlice(namespace, at, slice, now.slices[slice]))
		}
		if now.exported {
			stored := export(s.namespace, at.name)
			Expect(members[at.cluster].client.Get(ctx, client.ObjectKeyFromObject(stored), stored)).To(Succeed())
			made[at] = stored.CreationTimestamp.Time
		}
	}
	slices.SortStableFunc(order, func(a, b where) int { return made[a].Compare(made[b]) })
	for _, at := range order {
		if s.wanted[at].exported {
			steps = append(steps, putExport(namespace, at, s.wanted[at].scope))
		}
	}
	return steps
}

// run makes changes one after the other. Exports wait for the webhook of an
// agent that is being killed, as a user's controller would.
func run(ctx context.Context, steps []step) error {
	for _, s := range steps {
		var last error
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, ready, true, func(ctx context.Context) (bool, error) {
			last = s(ctx)
			return last == nil, nil
		})
		if err != nil {
			return errors.Join(err, last)
		}
	}
	return nil
}

func putService(namespace string, at where) step {
	return func(ctx context.Context) error {
		s := service(namespace, at.name)
		if at.name == "web-4" {
			s = headless(namespace, at.name)
		}
		err := members[at.cluster].client.Create(ctx, s)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
}

func putSlice(namespace string, at where, name string, addresses []string) step {
	return put(at, endpoints(namespace, at.name, name, addresses...), func(found client.Object) {
		found.(*discoveryv1.EndpointSlice).Endpoints = endpoints(namespace, at.name, name, addresses...).Endpoints
	})
}

func putExport(namespace string, at where, scope string) step {
	wanted := export(namespace, at.name)
	if scope != "" {
		wanted = scoped(namespace, at.name, scope)
	}
	return put(at, wanted, func(found client.Object) { found.SetAnnotations(wanted.Annotations) })
}

// put creates an object, or changes the one that is there.
func put(at where, wanted client.Object, change func(client.Object)) step {
	return func(ctx context.Context) error {
		c := members[at.cluster].client
		found := wanted.DeepCopyObject().(client.Object)
		err := c.Get(ctx, client.ObjectKeyFromObject(wanted), found)
		if apierrors.IsNotFound(err) {
			return c.Create(ctx, wanted.DeepCopyObject().(client.Object))
		}
		if err != nil {
			return err
		}
		change(found)
		return c.Update(ctx, found)
	}
}

func drop(at where, object client.Object) step {
	return func(ctx context.Context) error {
		return client.IgnoreNotFound(members[at.cluster].client.Delete(ctx, object.DeepCopyObject().(client.Object)))
	}
}
