// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Writer makes Subjects. They have the JSON of the input, save that a nil map is {} and a nil
// list is [], so that no rule meets an unexpected null, and that managedFields are left out,
// which are bookkeeping and often most of an object.
//
// It keeps the JSON of Services, Namespaces, destinations and peers, which usually are those
// of an earlier input: they are most of it, and grow with the number of clusters. The zero
// value keeps nothing. All methods are safe for concurrent use.
type Writer struct{ kept *lru.Cache }

// maxKept is how many of them are kept.
const maxKept = 1024

// NewWriter keeps Peers and Destinations by their addresses: they must never change.
func NewWriter() Writer { return Writer{lru.New(maxKept)} }

// Export is an export of this cluster.
func (w Writer) Export(in decision.Input) (*Subject, error) {
	s := &Subject{Stage: v1alpha1.StageExport, Operation: in.Operation}
	if in.Operation == decision.Audit && in.Published {
		s.Stands = decision.ByExisting
	}
	var texts [parts][]byte
	var errs [parts + 1]error
	if in.Before != nil && in.Operation == decision.Update && in.Published {
		s.Before, errs[parts] = w.Export(*in.Before)
	}
	if in.Object != nil {
		s.Namespace, s.Name = in.Object.Namespace, in.Object.Name
		texts[partObject], errs[partObject] = json.Marshal(decision.AsWritten(in.Object))
	}
	if in.OldObject != nil {
		texts[partOldObject], errs[partOldObject] = json.Marshal(decision.AsWritten(in.OldObject))
	}
	texts[partService], errs[partService] = keptObject(w, in.Service)
	texts[partNamespace], errs[partNamespace] = keptObject(w, in.Namespace)
	texts[partDestinations], errs[partDestinations] = w.view(in.Destinations, destinationsValue)
	texts[partPeers], errs[partPeers] = w.view(in.Peers, peersValue)
	in.Object, in.OldObject, in.Service, in.Namespace, in.Destinations, in.Peers = nil, nil, nil, nil, nil, nil
	in.Ports = notNil(in.Ports)
	for _, scope := range []*decision.Scope{&in.Scope, &in.NamespaceScope, &in.EffectiveScope} {
		scope.Clusters = notNil(scope.Clusters)
	}
	if in.UserInfo != nil {
		in.UserInfo = &decision.UserInfo{Username: in.UserInfo.Username, Groups: notNil(in.UserInfo.Groups)}
	}
	texts[partRest], errs[partRest] = json.Marshal(in)
	return s.with(texts, errs[:])
}

// Import is the import of one export from one source cluster. It is an audit.
func (w Writer) Import(in decision.ImportInput) (*Subject, error) {
	s := &Subject{
		Stage: v1alpha1.StageImport, Operation: decision.Audit, Namespace: in.Export.Namespace, Name: in.Export.Name, Cluster: in.Source.Cluster,
		Unread: in.Unread, Unknown: in.Source.Unknown,
	}
	if in.Imported {
		s.Stands = decision.ByImported
	}
	in.Source.Labels = notNilMap(in.Source.Labels)
	in.Export.Ports, in.Export.Tiers = notNil(in.Export.Ports), notNil(in.Export.Tiers)
	in.Export.Labels, in.Export.Annotations = notNilMap(in.Export.Labels), notNilMap(in.Export.Annotations)
	var texts [parts][]byte
	var errs [parts]error
	texts[partExport], errs[partExport] = json.Marshal(in.Export)
	texts[partNamespace], errs[partNamespace] = keptObject(w, in.Namespace)
	in.Export, in.Namespace = decision.ImportedExport{}, nil
	texts[partRest], errs[partRest] = json.Marshal(in)
	return s.with(texts, errs[:])
}

func (s *Subject) with(texts [parts][]byte, errs []error) (*Subject, error) {
	if err := cmp.Or(errs...); err != nil {
		return nil, fmt.Errorf("write the input: %w", err)
	}
	s.Text = slices.Concat(texts[:]...)
	end := 0
	for i, text := range texts {
		end += len(text)
		s.Ends[i] = end
	}
	return s, nil
}

// objectKey is the version of an object: a sum over its content. A UID with a
// resourceVersion would not do. The Service in a request has those of the stored one
// and another content, and so has an object after its API server was restored from a
// backup.
type objectKey struct {
	object  reflect.Type
	kind    schema.GroupVersionKind // not in the content
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

func keptObject[T any, P encodable[T]](w Writer, object P) ([]byte, error) {
	if object != nil && len(object.GetManagedFields()) > 0 {
		shallow := *object
		object = &shallow
		object.SetManagedFields(nil)
	}
	if w.kept == nil || object == nil {
		return json.Marshal(object)
	}
	content, err := object.Marshal()
	if err != nil || len(content) > maxObject {
		return json.Marshal(object)
	}
	key := objectKey{reflect.TypeFor[T](), object.GetObjectKind().GroupVersionKind(), sha256.Sum256(content)}
	return kept(w.kept, key, func() ([]byte, error) { return json.Marshal(object) })
}

// kept is what a cache has, or else what read gives, which the cache then has unless that failed.
func kept[T any](cache *lru.Cache, key any, read func() (T, error)) (T, error) {
	if value, found := cache.Get(key); found {
		return value.(T), nil
	}
	value, err := read()
	if err == nil {
		cache.Add(key, value)
	}
	return value, err
}

// view is what was written of a map or list. While it is kept, none other has its address.
type view struct {
	of   any
	text []byte
}

type viewKey struct {
	at     uintptr
	length int
}

func (w Writer) view(of any, value func(any) any) ([]byte, error) {
	at := reflect.ValueOf(of)
	if w.kept == nil || at.Len() == 0 { // what is empty has no address of its own
		return json.Marshal(value(of))
	}
	written, err := kept(w.kept, viewKey{at.Pointer(), at.Len()}, func() (view, error) {
		text, err := json.Marshal(value(of))
		return view{of, text}, err
	})
	return written.text, err
}

func peersValue(peers any) any {
	all := map[string]decision.Peer{}
	for id, peer := range peers.(map[string]decision.Peer) {
		all[id] = decision.Peer{Labels: notNilMap(peer.Labels), Namespace: namespaceValue(peer.Namespace)}
	}
	return all
}

func destinationsValue(destinations any) any {
	all := []decision.Destination{}
	for _, d := range destinations.([]decision.Destination) {
		all = append(all, decision.Destination{Clusters: notNil(d.Clusters), Namespace: namespaceValue(d.Namespace)})
	}
	return all
}

func namespaceValue(n decision.PeerNamespace) decision.PeerNamespace {
	n.Labels = notNilMap(n.Labels)
	return n
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func notNilMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
