// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/lru"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Writer makes Subjects. They have the JSON of the input, save that managedFields are left out,
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
	var errs [parts + 1]error
	if in.Before != nil && in.Operation == decision.Update && in.Published {
		s.Before, errs[parts] = w.Export(*in.Before)
	}
	if in.Object != nil {
		s.Namespace, s.Name = in.Object.Namespace, in.Object.Name
		s.Parts[partObject], errs[partObject] = json.Marshal(decision.AsWritten(in.Object))
	}
	if in.OldObject != nil {
		s.Parts[partOldObject], errs[partOldObject] = json.Marshal(decision.AsWritten(in.OldObject))
	}
	s.Parts[partService], errs[partService] = keptObject(w, in.Service)
	s.Parts[partNamespace], errs[partNamespace] = keptObject(w, in.Namespace)
	s.Parts[partDestinations], errs[partDestinations] = w.view(in.Destinations)
	s.Parts[partPeers], errs[partPeers] = w.view(in.Peers)
	in.Object, in.OldObject, in.Service, in.Namespace, in.Destinations, in.Peers = nil, nil, nil, nil, nil, nil
	s.Parts[partRest], errs[partRest] = json.Marshal(in)
	return s.written(errs[:])
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
	var errs [parts]error
	s.Parts[partExport], errs[partExport] = json.Marshal(in.Export)
	s.Parts[partNamespace], errs[partNamespace] = keptObject(w, in.Namespace)
	in.Export, in.Namespace = decision.ImportedExport{}, nil
	s.Parts[partRest], errs[partRest] = json.Marshal(in)
	return s.written(errs[:])
}

func (s *Subject) written(errs []error) (*Subject, error) {
	if err := cmp.Or(errs...); err != nil {
		return nil, fmt.Errorf("write the input: %w", err)
	}
	return s, nil
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
	key := objectKey{object: reflect.TypeFor[T](), content: sha256.Sum256(content)}
	if kind, ok := object.GetObjectKind().(*metav1.TypeMeta); ok {
		key.kind = *kind
	}
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

func (w Writer) view(of any) ([]byte, error) {
	at := reflect.ValueOf(of)
	if w.kept == nil || at.Len() == 0 { // what is empty has no address of its own
		return json.Marshal(of)
	}
	written, err := kept(w.kept, viewKey{at.Pointer(), at.Len()}, func() (view, error) {
		text, err := json.Marshal(of)
		return view{of, text}, err
	})
	return written.text, err
}
