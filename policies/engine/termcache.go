// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"maps"
	"reflect"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/lru"

	"github.com/comity-mcs/comity/policies/decision"
)

const (
	// maxObjects is how many terms of Services and Namespaces are kept. One takes
	// some 10 kB.
	maxObjects = 1024
	// maxContent is the size of the largest object that is kept, in bytes of protobuf:
	// whoever may write Services must not fill the memory with annotations.
	maxContent = 4 << 10
	// maxViews is how many terms of peers and destinations are kept, together. Those of
	// 50 peers in one namespace take some 60 kB.
	maxViews = 512
)

// termCache keeps terms that many evaluations need. A term never changes, so
// evaluations share it. All methods are safe for concurrent use.
type termCache struct {
	objects, views *lru.Cache
}

func newTermCache() *termCache {
	return &termCache{objects: lru.New(maxObjects), views: lru.New(maxViews)}
}

// objectKey is the version of an object: a sum over its content. A UID with a
// resourceVersion would not do. The Service in a request has those of the stored one
// and another content, and so has an object after its API server was restored from a
// backup.
type objectKey struct {
	object  reflect.Type
	kind    metav1.TypeMeta // not in the content
	content [sha256.Size]byte
}

// encodable are pointers to Kubernetes objects whose protobuf holds all of their
// JSON but apiVersion and kind.
type encodable[T any] interface {
	*T
	metav1.Object
	runtime.Object
	Marshal() ([]byte, error)
}

// storedObject is the term of the object, null for nil.
func storedObject[T any, P encodable[T]](c *termCache, object P) (ast.Value, error) {
	if object == nil {
		return ast.NullValue, nil
	}
	content, err := object.Marshal()
	if err != nil {
		return nil, err
	}
	if len(content) > maxContent {
		return valueOf(object)
	}
	key := objectKey{object: reflect.TypeFor[T](), content: sha256.Sum256(content)}
	if kind, ok := object.GetObjectKind().(*metav1.TypeMeta); ok {
		key.kind = *kind
	}
	if term, kept := c.objects.Get(key); kept {
		return term.(ast.Value), nil
	}
	value, err := valueOf(object)
	if err == nil {
		c.objects.Add(key, value)
	}
	return value, err
}

// view is a copy of what was converted, and its term. It is kept by the address of the map
// or list, and counts only if the content is still the same.
type view[T any] struct {
	copy T
	term ast.Value
}

// peers is the term of the peers.
func (c *termCache) peers(peers map[string]decision.Peer) (ast.Value, error) {
	same := func(other map[string]decision.Peer) bool {
		return maps.EqualFunc(peers, other, func(a, b decision.Peer) bool {
			return maps.Equal(a.Labels, b.Labels) && sameNamespace(a.Namespace, b.Namespace)
		})
	}
	return keptView(c, peers, same, func() map[string]decision.Peer {
		all := make(map[string]decision.Peer, len(peers))
		for id, peer := range peers {
			all[id] = decision.Peer{Labels: maps.Clone(notNilMap(peer.Labels)), Namespace: copyNamespace(peer.Namespace)}
		}
		return all
	})
}

// destinations is the term of the destinations.
func (c *termCache) destinations(destinations []decision.Destination) (ast.Value, error) {
	same := func(other []decision.Destination) bool {
		return slices.EqualFunc(destinations, other, func(a, b decision.Destination) bool {
			return slices.Equal(a.Clusters, b.Clusters) && sameNamespace(a.Namespace, b.Namespace)
		})
	}
	return keptView(c, destinations, same, func() []decision.Destination {
		all := make([]decision.Destination, 0, len(destinations))
		for _, d := range destinations {
			all = append(all, decision.Destination{Clusters: slices.Clone(notNil(d.Clusters)), Namespace: copyNamespace(d.Namespace)})
		}
		return all
	})
}

func sameNamespace(a, b decision.PeerNamespace) bool {
	return a.Presence == b.Presence && maps.Equal(a.Labels, b.Labels)
}

func copyNamespace(n decision.PeerNamespace) decision.PeerNamespace {
	return decision.PeerNamespace{Presence: n.Presence, Labels: maps.Clone(notNilMap(n.Labels))}
}

// keptView is the kept term of a map or list, or that of its copy.
func keptView[T any](c *termCache, of T, same func(T) bool, copied func() T) (ast.Value, error) {
	at := reflect.ValueOf(of)
	if at.Len() == 0 { // what is empty has no address of its own
		return valueOf(copied())
	}
	if kept, found := c.views.Get(at.Pointer()); found {
		if v, is := kept.(view[T]); is && same(v.copy) {
			return v.term, nil
		}
	}
	all := copied()
	term, err := valueOf(all)
	if err == nil {
		c.views.Add(at.Pointer(), view[T]{all, term})
	}
	return term, err
}
