// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package hub lets all members publish in the API server of a hub, instead of each in its own.
//
// It takes the file of a kubeconfig and the peers; it gives a client, a cache of this
// member's own namespaces in the hub, and why one of them cannot be used. It needs no
// permission beyond those namespaces, and reads each by its name. While the hub does not
// respond, what was read stays. It uses a new token from the file; package members renews it.
package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/listwatch"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// Peers is what the exchange needs to know of the other members: for each there
// is a namespace that it alone reads.
type Peers interface {
	Listed() <-chan struct{}
	Members() []model.Member
	Subscribe(func(model.MemberChange)) (cancel func())
}

// Options configure a Hub; all fields without a default are required.
type Options struct {
	// Self is this cluster's id.
	Self model.ClusterID
	// Kubeconfig is a file with access to the hub, held to the rules of the
	// Secrets of Peers: one context, everything inlined. It may come later, and change.
	Kubeconfig string
	// Scheme knows the exchange's kinds.
	Scheme *runtime.Scheme
	Peers  Peers
	// Wrap sees every request to the hub; nil for none.
	Wrap transport.WrapperFunc
	// Log never receives a credential.
	Log logr.Logger
	// CheckInterval is how often the file and the namespaces are read. The
	// kubelet takes about a minute to change a mounted Secret anyway.
	CheckInterval time.Duration
}

// Hub is the exchange in the hub. Use New, then add it to the manager.
type Hub struct {
	// Client reads the records and EndpointSlices in this member's exchange namespaces
	// from a cache, and Leases from the hub; it writes to the hub.
	Client client.Client
	// Changed notifies that Problem may return something else, or that an exchange
	// namespace was created again.
	Changed notify.Notifier

	opts   Options
	link   *link
	caches *namespaceCaches
	wake   notify.Wake
	now    func() time.Time

	mu    sync.Mutex
	known map[string]namespaceState // of the namespaces in the hub, as they were read last
}

// New prepares the exchange; it sends no request and reads no file.
func New(opts Options) (*Hub, error) {
	link := newLink(opts.Kubeconfig, opts.Self)
	mapper := newMapper(opts.Scheme)
	httpClient := &http.Client{Transport: transport.Wrappers(opts.Wrap)(link)}
	h := &Hub{
		opts: opts, link: link, wake: notify.NewWake(), now: time.Now, known: map[string]namespaceState{},
		caches: &namespaceCaches{ready: make(chan struct{}), all: map[string]*namespaceCache{}, make: func(namespace string) (cache.Cache, error) {
			return cache.New(link.restConfig(), cache.Options{
				HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper, DefaultTransform: compactslice.Shrink,
				NewInformer:       listwatch.NewInformer(opts.Log),
				DefaultNamespaces: map[string]cache.Config{namespace: {}},
			})
		}},
	}
	var err error
	h.Client, err = client.New(link.restConfig(), client.Options{
		HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper,
		// There is one Lease, and no one needs its changes; and of Namespaces it must be known that the hub answered.
		Cache: &client.CacheOptions{Reader: h.caches, DisableFor: []client.Object{&coordinationv1.Lease{}, &corev1.Namespace{}}},
	})
	if err != nil {
		return nil, fmt.Errorf("client of the hub: %w", err)
	}
	return h, h.caches.setUp(h.checkWithoutMember)
}

// newMapper knows the few kinds by itself, so that nothing waits for a
// discovery of the hub, and no discovery is repeated while it does not answer.
func newMapper(scheme *runtime.Scheme) apimeta.RESTMapper {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	for _, version := range []schema.GroupVersion{exchangev1alpha1.GroupVersion, discoveryv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion} {
		for kind := range scheme.KnownTypes(version) {
			mapper.Add(version.WithKind(kind), apimeta.RESTScopeNamespace)
		}
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), apimeta.RESTScopeRoot)
	return mapper
}

// checkWithoutMember has a namespace read again when its MemberRecord is deleted:
// the namespace may be deleted too. One of the same name that is created later is
// empty, and its MemberRecord must wait until everything was published there.
func (h *Hub) checkWithoutMember(one *namespaceCache) error {
	if one.namespace != model.ExchangeNamespace(h.opts.Self) {
		return nil
	}
	informer, err := one.GetInformer(one.ctx, &exchangev1alpha1.MemberRecord{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(any) {
		h.expire(one.namespace)
		h.wake.Up()
	}})
	return err
}

// Indexer indexes fields of what Client reads from its cache.
func (h *Hub) Indexer() client.FieldIndexer { return h.caches }

// Watch is a source of the keys that events of one kind give, in every one of this
// member's exchange namespaces that has the kind: each watch takes some 100 kB of the hub's memory.
func (h *Hub) Watch(kind client.Object, keys handler.EventHandler) source.Source {
	only := ""
	switch kind.(type) {
	case *exchangev1alpha1.MemberRecord, *exchangev1alpha1.NamespaceRecord:
		only = model.ExchangeNamespace(h.opts.Self)
	}
	return &watch{h.caches, kind, keys, only}
}

// Problem says why nothing can be published in a namespace now; empty if it can.
// While the hub does not answer, the last answer stays valid.
func (h *Hub) Problem(ctx context.Context, name string) string {
	if err := h.link.problem(); err != nil {
		return err.Error()
	}
	now := h.readNamespace(ctx, name)
	if now.usable() && h.caches.isSynced(name, now.uid) {
		return ""
	}
	h.wake.Up()
	return cmp.Or(now.problem, fmt.Sprintf("exchange namespace %s in the hub was not read yet, or was created again; it is being read", name))
}

// Read says why this member's namespaces in the hub were not read yet; nil once those
// were that this member can read, the one for all members among them.
func (h *Hub) Read() error {
	select {
	case <-h.opts.Peers.Listed():
	default:
		return errors.New("the Peers are not read yet, so neither are the exchange namespaces in the hub")
	}
	for name := range h.wanted() {
		last := h.last(name)
		unknown := !last.known && (last.problem == "" || name == model.ExchangeNamespace(h.opts.Self))
		if unknown || last.usable() && !h.caches.isSynced(name, last.uid) {
			return fmt.Errorf("exchange namespace %s in the hub was not read yet", name)
		}
	}
	return nil
}

// NeedLeaderElection is false: the webhook of every replica needs to know what is
// published.
func (h *Hub) NeedLeaderElection() bool { return false }

// Start reads the file, and watches the namespaces of this member and its peers,
// until ctx ends. After an error the process must restart.
func (h *Hub) Start(ctx context.Context) error {
	defer h.caches.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer h.opts.Peers.Subscribe(func(c model.MemberChange) {
		if c.What == model.MemberOther {
			h.wake.Up()
		}
	})()
	if !notify.Await(ctx, h.opts.Peers.Listed()) {
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
		}
		if h.Read() == nil {
			ready()
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
func (h *Hub) wanted() sets.Set[string] {
	out := sets.New(model.ExchangeNamespace(h.opts.Self))
	for _, m := range h.opts.Peers.Members() {
		out.Insert(model.ScopedExchangeNamespace(h.opts.Self, m.ID))
	}
	return out
}

// watchNamespaces watches those of this member's namespaces that exist.
func (h *Hub) watchNamespaces(ctx context.Context) {
	wanted := h.wanted()
	for _, name := range sets.List(wanted) {
		if ctx.Err() != nil {
			return
		}
		switch now := h.readNamespace(ctx, name); {
		case now.usable():
			synced := func() {
				h.Changed.All()
				h.wake.Up()
			}
			if err := h.caches.add(ctx, name, now.uid, synced); err != nil {
				h.opts.Log.Error(err, "namespace of the exchange")
			}
		case now.known && h.caches.remove(name):
			h.Changed.All()
		}
	}
	for name := range h.caches.watched() {
		if !wanted.Has(name) {
			h.caches.remove(name)
			h.mu.Lock()
			delete(h.known, name)
			h.mu.Unlock()
		}
	}
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
	err := h.Client.Get(ctx, client.ObjectKey{Name: name}, &found)
	switch {
	case err == nil:
		state.known, state.uid, state.problem = true, found.UID, exchange.NamespaceProblem(h.opts.Self, name, &found)
	case apierrors.IsNotFound(err):
		state.known, state.uid, state.problem = true, "", exchange.NamespaceProblem(h.opts.Self, name, nil)
	case state.known:
	default:
		state.problem = fmt.Sprintf("exchange namespace %s in the hub cannot be read: %s; if this stays so, run kubectl comity join", name, model.Bound(err.Error(), 200))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	state.checked = h.now()
	h.known[name] = state
	return state
}
