// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package apiserver is a small Kubernetes API server in memory, for the simulator: objects with UIDs and resource versions, server-side apply,
// preconditions, namespaces that end, cluster IPs, and a log that caches follow
// as late as the simulator likes.
//
// It takes the kinds that Comity reads and writes; it gives what a real server
// would answer, and calls Audit for every write that took effect. It is used by
// one goroutine, reads no clock but Clock, and keeps every object as it was:
// what it hands out is read-only. It follows the Kubernetes API conventions.
package apiserver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// Object is any Kubernetes object.
type Object = client.Object

// Ref names an object. Namespaces have no namespace.
type Ref struct{ Kind, Namespace, Name string }

// String is "Service shop/web".
func (r Ref) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// RefOf names an object whose kind is filled in.
func RefOf(o client.Object) Ref {
	return Ref{o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName()}
}

func byRef(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Write is one write that took effect: Before is nil if it created the object,
// After if it deleted it.
type Write struct {
	Actor         string
	Status        bool
	Ref           Ref
	Before, After client.Object
}

// Verb is "create", "update", "status" or "delete".
func (w Write) Verb() string {
	switch {
	case w.Before == nil:
		return "create"
	case w.After == nil:
		return "delete"
	case w.Status:
		return "status"
	}
	return "update"
}

// entry is one change of an object, so that it can be played both ways.
type entry struct {
	ref           Ref
	before, after client.Object
}

// stored is an object and what Comity applied of it and still owns.
type stored struct {
	object  client.Object
	applied map[string]any
}

// Server is one cluster's API server.
type Server struct {
	Name string
	// Clock is what time it is in this cluster.
	Clock func() time.Time
	// Lax lets slices hold anything, as a server can that is not Kubernetes.
	Lax bool
	// Audit is called after each write; nil is told nothing.
	Audit func(Write)

	version int // the resource version of the last write
	ids     int // of which UIDs and cluster IPs are made; never goes back
	epoch   int // grows with every restore
	objects map[Ref]stored
	log     map[string][]entry // by kind
}

// New is an empty server.
func New(name string, clock func() time.Time) *Server {
	return &Server{Name: name, Clock: clock, version: 1, objects: map[Ref]stored{}, log: map[string][]entry{}}
}

// Get is an object; nil if there is none.
func (s *Server) Get(ref Ref) client.Object { return s.objects[ref].object }

// List is every object of a kind, in all namespaces or in one, in order.
func (s *Server) List(kind, namespace string) []client.Object {
	var refs []Ref
	for ref := range s.objects {
		if ref.Kind == kind && (namespace == "" || ref.Namespace == namespace) {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, byRef)
	out := make([]client.Object, len(refs))
	for i, ref := range refs {
		out[i] = s.objects[ref].object
	}
	return out
}

// Put creates or replaces an object as anybody but Comity does, and takes from
// Comity the ownership of every field that it changes.
func (s *Server) Put(actor string, o client.Object) error {
	ref := RefOf(o)
	before, exists := s.objects[ref]
	o, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s is no object", ref)
	}
	if !exists {
		if err := s.mayCreate(ref); err != nil {
			return err
		}
	}
	if err := s.admit(o, before.object); err != nil {
		return err
	}
	applied := before.applied
	if exists {
		applied = disown(applied, contentOf(o, ref.Kind))
	}
	s.store(actor, ref, o, applied, false)
	return nil
}

// Remove deletes an object; a namespace is only marked, Finalize ends it.
func (s *Server) Remove(actor string, ref Ref) {
	before, exists := s.objects[ref]
	if !exists {
		return
	}
	if namespace, is := before.object.(*corev1.Namespace); is && namespace.DeletionTimestamp == nil {
		going := namespace.DeepCopy()
		now := metav1.NewTime(s.Clock())
		going.DeletionTimestamp = &now
		s.store(actor, ref, going, before.applied, false)
		return
	}
	delete(s.objects, ref)
	s.version++
	s.note(actor, entry{ref, before.object, nil}, false)
	if ref.Kind == "Service" { // its endpoint slices are garbage now
		for _, o := range s.List("EndpointSlice", ref.Namespace) {
			if o.GetLabels()[discoveryv1.LabelServiceName] == ref.Name && o.GetLabels()[discoveryv1.LabelManagedBy] != model.ManagedBy {
				s.Remove("garbage-collector", RefOf(o))
			}
		}
	}
}

// Finalize does the next step of what ends a namespace: it deletes one object
// in it, or the empty namespace itself. False if the namespace is not going.
func (s *Server) Finalize(namespace string) bool {
	ref := Ref{"Namespace", "", namespace}
	o := s.Get(ref)
	if o == nil || o.GetDeletionTimestamp() == nil {
		return false
	}
	var inside []Ref
	for other := range s.objects {
		if other.Namespace == namespace {
			inside = append(inside, other)
		}
	}
	if len(inside) == 0 {
		s.Remove("namespace-controller", ref)
		return true
	}
	s.Remove("namespace-controller", slices.MinFunc(inside, byRef))
	return true
}

// Snapshot is all that a backup of etcd holds.
type Snapshot struct {
	version int
	objects map[Ref]stored
}

// Backup takes a snapshot.
func (s *Server) Backup() Snapshot { return Snapshot{s.version, maps.Clone(s.objects)} }

// Restore puts the snapshot back: resource versions start over from there, and
// every watch ends.
func (s *Server) Restore(from Snapshot) {
	s.version, s.objects, s.log = from.version, maps.Clone(from.objects), map[string][]entry{}
	s.epoch++
}

func (s *Server) store(actor string, ref Ref, o client.Object, applied map[string]any, status bool) {
	before := s.objects[ref].object
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	if before == nil {
		s.ids++
		o.SetUID(types.UID(fmt.Sprintf("%s-%d", s.Name, s.ids)))
		o.SetCreationTimestamp(metav1.NewTime(s.Clock().Truncate(time.Second)))
	} else {
		o.SetUID(before.GetUID())
		o.SetCreationTimestamp(before.GetCreationTimestamp())
	}
	s.objects[ref] = stored{o, applied}
	s.note(actor, entry{ref, before, o}, status)
}

func (s *Server) note(actor string, e entry, status bool) {
	s.log[e.ref.Kind] = append(s.log[e.ref.Kind], e)
	if s.Audit != nil {
		s.Audit(Write{Actor: actor, Status: status, Ref: e.ref, Before: e.before, After: e.after})
	}
}

// mayCreate refuses what has no namespace to be in.
func (s *Server) mayCreate(ref Ref) error {
	if ref.Namespace == "" {
		return nil
	}
	namespace := s.Get(Ref{"Namespace", "", ref.Namespace})
	if namespace == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, ref.Namespace)
	}
	if namespace.GetDeletionTimestamp() != nil {
		err := apierrors.NewForbidden(resource(ref), ref.Name, fmt.Errorf("namespace %s is being terminated", ref.Namespace))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
		return err
	}
	return nil
}

func resource(ref Ref) schema.GroupResource { return schema.GroupResource{Resource: ref.Kind} }
