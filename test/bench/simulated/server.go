// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulated is the other members of a large clusterset, for the benchmark.
//
// It takes how many members, exports and endpoints there are; it gives what they publish, as
// objects, a server of them that answers as their API servers would, and their watches of what
// the measured member publishes. They export, report and renew Leases; they import nothing.
package simulated

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/test/install"
)

// Server is the API servers of all simulated members: the path of a request has the namespace,
// and so whose it is. It serves get, list and watch, with pages, resource versions and
// bookmarks, and protobuf where the API has it. It does not check credentials, ignores
// selectors, which would select everything here, and streams no list.
type Server struct {
	// URL is where it serves, CA what verifies that.
	URL string
	CA  []byte

	server *http.Server
	codecs serializer.CodecFactory
	scheme *runtime.Scheme

	mu          sync.Mutex
	version     int
	collections map[string]*collection // by namespace/resource
	watches     int
}

// collection is one kind in one namespace. Nothing is ever deleted from it.
type collection struct {
	objects map[string]client.Object
	watches map[chan []byte]bool
}

const (
	// bookmarks is how often a watch gets one, as from an API server.
	bookmarks = time.Minute
	// backlog is how many events may wait for the reader of a watch before it is closed.
	backlog = 1000
)

// Serve starts a Server without any object.
func Serve() (*Server, error) {
	certificate, err := install.NewCertificate("bench")
	if err != nil {
		return nil, err
	}
	identity, err := tls.X509KeyPair(certificate.Cert, certificate.Key)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	scheme := Scheme()
	s := &Server{
		URL: "https://" + listener.Addr().String(), CA: certificate.CA, scheme: scheme,
		codecs: serializer.NewCodecFactory(scheme), version: 1, collections: map[string]*collection{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/{group}/{version}/namespaces/{namespace}/{resource}", s.serve)
	mux.HandleFunc("GET /apis/{group}/{version}/namespaces/{namespace}/{resource}/{name}", s.get)
	s.server = &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{identity}, MinVersion: tls.VersionTLS13}, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.server.ServeTLS(listener, "", "") }() // until Close
	return s, nil
}

// Scheme has the kinds that members publish.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(discoveryv1.AddToScheme, coordinationv1.AddToScheme, exchangev1alpha1.AddToScheme)
	utilruntime.Must(kinds.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// Close ends the server and all connections.
func (s *Server) Close() error { return s.server.Close() }

// Watches is how many watches are open.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// Put stores an object, or a new version of it, and sends it to all watches. It stores object itself.
func (s *Server) Put(object client.Object) error {
	kind, err := s.kindOf(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collection(object.GetNamespace() + "/" + strings.ToLower(kind.Kind) + "s")
	event := "MODIFIED"
	if c.objects[object.GetName()] == nil {
		event = "ADDED"
	}
	s.version++
	object.SetResourceVersion(strconv.Itoa(s.version))
	c.objects[object.GetName()] = object
	if len(c.watches) == 0 {
		return nil
	}
	frame, err := s.event(kind.GroupVersion(), event, object)
	if err != nil {
		return err
	}
	for watch := range c.watches {
		c.send(watch, frame)
	}
	return nil
}

// send ends a watch whose reader is too slow, as an API server does.
func (c *collection) send(watch chan []byte, frame []byte) {
	select {
	case watch <- frame:
	default:
		delete(c.watches, watch)
		close(watch)
	}
}

// collection needs mu.
func (s *Server) collection(key string) *collection {
	c := s.collections[key]
	if c == nil {
		c = &collection{objects: map[string]client.Object{}, watches: map[chan []byte]bool{}}
		s.collections[key] = c
	}
	return c
}

func (s *Server) kindOf(object runtime.Object) (schema.GroupVersionKind, error) {
	kinds, _, err := s.scheme.ObjectKinds(object)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}

// serializer is protobuf, but for custom resources.
func (s *Server) serializer(group string) runtime.SerializerInfo {
	media := runtime.ContentTypeProtobuf
	if group == exchangev1alpha1.GroupVersion.Group {
		media = runtime.ContentTypeJSON
	}
	info, _ := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), media) // the factory has both
	return info
}

// encode is an object as it is sent.
func (s *Server) encode(version schema.GroupVersion, object runtime.Object) ([]byte, error) {
	encoder := s.codecs.WithoutConversion().EncoderForVersion(s.serializer(version.Group).Serializer, version)
	return runtime.Encode(encoder, object)
}

// event is one event of a watch as it is sent.
func (s *Server) event(version schema.GroupVersion, event string, object runtime.Object) ([]byte, error) {
	raw, err := s.encode(version, object)
	if err != nil {
		return nil, err
	}
	stream, frame, text := s.serializer(version.Group).StreamSerializer, bytes.Buffer{}, bytes.Buffer{}
	if err := stream.Encode(&metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Raw: raw}}, &text); err != nil {
		return nil, err
	}
	_, err = stream.Framer.NewFrameWriter(&frame).Write(text.Bytes())
	return frame.Bytes(), err
}

// kindServed is the kind of the resource in a path; false if there is none.
func (s *Server) kindServed(r *http.Request) (schema.GroupVersionKind, bool) {
	version := schema.GroupVersion{Group: r.PathValue("group"), Version: r.PathValue("version")}
	for kind := range s.scheme.KnownTypes(version) {
		if strings.ToLower(kind)+"s" == r.PathValue("resource") {
			return version.WithKind(kind), true
		}
	}
	return schema.GroupVersionKind{}, false
}

// serve answers a list or a watch.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	kind, known := s.kindServed(r)
	query := r.URL.Query()
	switch {
	case !known:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case query.Get("sendInitialEvents") != "": // as with the feature disabled
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case query.Get("watch") != "":
		s.watch(w, r, kind)
	default:
		s.answer(w, kind.GroupVersion(), func() (runtime.Object, error) { return s.page(r, kind) })
	}
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	kind, _ := s.kindServed(r)
	s.answer(w, kind.GroupVersion(), func() (runtime.Object, error) {
		object := s.collection(key(r)).objects[r.PathValue("name")]
		if object == nil {
			return nil, apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: r.PathValue("resource")}, r.PathValue("name"))
		}
		return object, nil
	})
}

func key(r *http.Request) string { return r.PathValue("namespace") + "/" + r.PathValue("resource") }

// answer sends what read returns, which is called with mu.
func (s *Server) answer(w http.ResponseWriter, version schema.GroupVersion, read func() (runtime.Object, error)) {
	s.mu.Lock()
	object, err := read()
	var body []byte
	if err == nil {
		body, err = s.encode(version, object)
	}
	s.mu.Unlock()
	if err != nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	w.Header().Set("Content-Type", s.serializer(version.Group).MediaType)
	_, _ = w.Write(body) // the reader may be gone
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(&metav1.Status{ // the reader may be gone
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code),
	})
}

// page is one page of a list. The token of the next one is the last name, since nothing is
// deleted. It needs mu.
func (s *Server) page(r *http.Request, kind schema.GroupVersionKind) (runtime.Object, error) {
	query, c := r.URL.Query(), s.collection(key(r))
	limit, _ := strconv.Atoi(query.Get("limit"))
	names := slices.Sorted(maps.Keys(c.objects))
	first, _ := slices.BinarySearch(names, query.Get("continue"))
	names = names[first:]
	list, err := s.scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, err
	}
	accessor, err := apimeta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(strconv.Itoa(s.version))
	if limit > 0 && len(names) > limit {
		accessor.SetContinue(names[limit])
		names = names[:limit]
	}
	objects := make([]runtime.Object, 0, len(names))
	for _, name := range names {
		objects = append(objects, c.objects[name])
	}
	return list, apimeta.SetList(list, objects)
}

// watch sends what is newer than the version of the request, then all that changes.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, kind schema.GroupVersionKind) {
	info, query := s.serializer(kind.Group), r.URL.Query()
	since, _ := strconv.Atoi(query.Get("resourceVersion"))
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	events := make(chan []byte, backlog)
	s.mu.Lock()
	missed, err := s.since(s.collection(key(r)), since, kind.GroupVersion())
	s.collection(key(r)).watches[events] = true
	s.watches++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.collection(key(r)).watches, events)
		s.watches--
	}()
	if err != nil {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		return
	}
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	if info.MediaType == runtime.ContentTypeJSON {
		w.Header().Set("Content-Type", info.MediaType)
	}
	_, _ = w.Write(missed)
	w.(http.Flusher).Flush()
	end, bookmark := time.NewTimer(cmp.Or(time.Duration(seconds)*time.Second, time.Hour)), time.NewTicker(bookmarks)
	defer end.Stop()
	defer bookmark.Stop()
	for {
		var frame []byte
		open := true
		select {
		case frame, open = <-events:
		case <-bookmark.C:
			frame, open = s.bookmark(kind)
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
		if !open {
			return
		}
		if _, err := w.Write(frame); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

// since are the events after a version. It needs mu.
func (s *Server) since(c *collection, version int, group schema.GroupVersion) (frames []byte, err error) {
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		if at, _ := strconv.Atoi(c.objects[name].GetResourceVersion()); at <= version {
			continue
		}
		frame, err := s.event(group, "MODIFIED", c.objects[name])
		if err != nil {
			return nil, err
		}
		frames = append(frames, frame...)
	}
	return frames, nil
}

// bookmark is one of the current version.
func (s *Server) bookmark(kind schema.GroupVersionKind) ([]byte, bool) {
	object, err := s.scheme.New(kind)
	if err != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	object.(client.Object).SetResourceVersion(strconv.Itoa(s.version))
	frame, err := s.event(kind.GroupVersion(), "BOOKMARK", object)
	return frame, err == nil
}
