// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// remoteServer is the API server of cluster b: it lists and watches the
// exchange namespaces, and can be made to fail.
type remoteServer struct {
	t      *testing.T
	server *httptest.Server

	mu      sync.Mutex
	version int
	// forgotten: watches from before this version are told so.
	forgotten int
	objects   map[string]map[string]metav1.Object // resource/namespace → name
	watches   map[string][]chan string
	history   map[string][]string // the lines of all watches, by version; "" for others
	refuse    func(resource string) (code int, reason string)
	lists     map[string]int // how often each resource/namespace was listed
	deaf      bool           // watches bring nothing any more
	stale     bool           // watches that are open do not, and those that are opened do
	late      string         // the watches of this resource/namespace bring nothing yet
}

func newRemoteServer(t *testing.T) *remoteServer {
	t.Helper()
	r := &remoteServer{t: t, objects: map[string]map[string]metav1.Object{}, watches: map[string][]chan string{}, history: map[string][]string{}, lists: map[string]int{}}
	r.server = httptest.NewUnstartedServer(r)
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.server.StartTLS()
	t.Cleanup(func() {
		_ = r.server.Listener.Close() // no watch is opened again meanwhile, for which Close would wait
		r.server.CloseClientConnections()
		r.server.Close()
	})
	r.put("memberrecords", memberRecord("uid-b"))
	return r
}

func (r *remoteServer) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
}

// secret is the Secret that leads to this server.
func (r *remoteServer) secret() corev1.Secret {
	return secret("peer-b", kubeconfigOf(r.t, r.server.URL, r.ca(), token))
}

const token = "very-secret-token"

// kubeconfigOf is a good one of a server with a certificate of its own; without
// one, of a server that is never asked.
func kubeconfigOf(t testing.TB, server string, ca []byte, token string) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["b"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["b"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["b"] = &clientcmdapi.Context{Cluster: "b", AuthInfo: "b"}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func secret(name string, data []byte) corev1.Secret {
	return corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-system", Name: name}, Data: map[string][]byte{kubeconfig.SecretKey: data}}
}

// peer is the Peer of cluster b, changed.
func peer(change ...func(*exchangev1alpha1.Peer)) exchangev1alpha1.Peer {
	p := exchangev1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "peer-b", ResourceVersion: "1", Generation: 1},
		Spec:       exchangev1alpha1.PeerSpec{ClusterSet: "prod", ClusterUID: "uid-b", KubeconfigSecret: "peer-b", AcceptedCIDRs: []string{"10.1.0.0/16"}},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func (r *remoteServer) put(resource string, objects ...metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range objects {
		r.version++
		o.SetResourceVersion(fmt.Sprint(r.version))
		in := resource + "/" + o.GetNamespace()
		if r.objects[in] == nil {
			r.objects[in] = map[string]metav1.Object{}
		}
		kind := "MODIFIED"
		if r.objects[in][o.GetName()] == nil {
			kind = "ADDED"
		}
		r.objects[in][o.GetName()] = o
		r.send(in, kind, o)
	}
}

func (r *remoteServer) remove(resource, namespace string, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := resource + "/" + namespace
	for _, name := range names {
		r.version++
		o := r.objects[in][name]
		delete(r.objects[in], name)
		o.SetResourceVersion(fmt.Sprint(r.version))
		r.send(in, "DELETED", o)
	}
}

// send needs mu.
func (r *remoteServer) send(in, kind string, o metav1.Object) {
	if r.deaf || r.late == in {
		return
	}
	data, err := json.Marshal(o)
	if err != nil {
		r.t.Fatal(err)
	}
	line := fmt.Sprintf(`{"type":%q,"object":%s}`, kind, data)
	for len(r.history[in]) <= r.version {
		r.history[in] = append(r.history[in], "")
	}
	r.history[in][r.version] = line
	if r.stale {
		return
	}
	for _, w := range r.watches[in] {
		w <- line
	}
}

// change runs f while no request is answered.
func (r *remoteServer) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// restore takes everything back to a version, and hangs up. As with the real
// server, watches from a version that is to come get nothing until it has come,
// and lists that may not be older are refused.
func (r *remoteServer) restore(version int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, objects := range r.objects {
		for name, o := range objects {
			if at, _ := strconv.Atoi(o.GetResourceVersion()); at > version {
				delete(objects, name) // how it was before is not kept
			}
		}
	}
	for in, lines := range r.history {
		r.history[in] = lines[:min(len(lines), version+1)]
	}
	r.version = version
	for in, watches := range r.watches {
		for _, w := range watches {
			close(w)
		}
		delete(r.watches, in)
	}
}

// gone is what a watch says whose version was forgotten.
const gone = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}`

// restart forgets all versions: watches from one, those that are about to begin
// too, end with 410 Gone, so that everything is listed anew.
func (r *remoteServer) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	r.forgotten = r.version
	for in := range r.watches {
		for _, w := range r.watches[in] {
			w <- gone
			close(w)
		}
		delete(r.watches, in)
	}
}

func (r *remoteServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	_, path, _ := strings.Cut(q.URL.Path, "/namespaces/")
	parts := strings.Split(path, "/") // namespace, resource and perhaps a name
	resource, in := parts[1], parts[1]+"/"+parts[0]
	r.mu.Lock()
	refuse := r.refuse
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	fail := func(code int, reason string) {
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, code, reason)
	}
	if refuse != nil {
		if code, reason := refuse(resource); code != 0 {
			fail(code, reason)
			return
		}
	}
	switch {
	case q.URL.Query().Get("sendInitialEvents") != "":
		fail(422, "Invalid") // it streams no lists
	case q.URL.Query().Get("watch") != "":
		r.serveWatch(w, q, in)
	case len(parts) == 3:
		r.mu.Lock()
		data, _ := json.Marshal(r.objects[in][parts[2]])
		r.mu.Unlock()
		if string(data) == "null" {
			fail(404, "NotFound")
			return
		}
		_, _ = w.Write(data)
	default:
		r.mu.Lock()
		if from, _ := strconv.Atoi(q.URL.Query().Get("resourceVersion")); from > r.version {
			r.mu.Unlock()
			w.WriteHeader(504)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":504,"reason":"Timeout",
				"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}`)
			return
		}
		if q.URL.Query().Get("limit") != "1" { // which asks for the version alone
			r.lists[in]++
		}
		items := []metav1.Object{}
		for _, o := range r.objects[in] {
			items = append(items, o)
		}
		data, _ := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": fmt.Sprint(r.version)}, "items": items})
		r.mu.Unlock()
		_, _ = w.Write(data)
	}
}

func (r *remoteServer) serveWatch(w http.ResponseWriter, q *http.Request, in string) {
	lines := make(chan string, 5000)
	from, _ := strconv.Atoi(q.URL.Query().Get("resourceVersion"))
	r.mu.Lock()
	for version, line := range r.history[in] {
		if version > from && line != "" {
			lines <- line
		}
	}
	switch {
	case from < r.forgotten:
		lines <- gone
		close(lines)
	case from <= r.version:
		r.watches[in] = append(r.watches[in], lines)
	}
	r.mu.Unlock()
	w.(http.Flusher).Flush()
	for {
		select {
		case line, open := <-lines:
			if !open {
				return
			}
			_, _ = fmt.Fprintln(w, line)
			w.(http.Flusher).Flush()
		case <-q.Context().Done():
			return
		}
	}
}

var shared = model.ExchangeNamespace("b")

func memberRecord(uid types.UID) *exchangev1alpha1.MemberRecord {
	return &exchangev1alpha1.MemberRecord{
		TypeMeta:   metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: "MemberRecord"},
		ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: "b"},
		Spec:       exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: "prod", ClusterUID: uid},
	}
}

func lease(second int) *coordinationv1.Lease {
	at := metav1.NewMicroTime(time.Unix(int64(second), 0))
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: "b", UID: "lease"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &at},
	}
}

func record(namespace string, i int) *exchangev1alpha1.ExportRecord {
	k := keyOf(i)
	return &exchangev1alpha1.ExportRecord{
		TypeMeta:   metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: "ExportRecord"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: model.RecordName(k.Namespace, k.Name)},
		Spec: exchangev1alpha1.ExportRecordSpec{
			Service:           exchangev1alpha1.ServiceReference{Namespace: k.Namespace, Name: k.Name},
			ExportUID:         "uid",
			ExportedAt:        metav1.Unix(1, 0),
			ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}}},
		},
	}
}

func keyOf(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("web-", i)}
}

func sliceOf(i int, addresses ...string) *discoveryv1.EndpointSlice {
	k := keyOf(i)
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shared, Name: "shop." + k.Name + "-x", Annotations: map[string]string{model.AnnotationSourceSlice: k.Name + "-x"},
			Labels: map[string]string{discoveryv1.LabelManagedBy: model.ManagedBy, model.LabelExportNamespace: k.Namespace, model.LabelExportName: k.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	}
}
