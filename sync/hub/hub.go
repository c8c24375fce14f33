// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/compactslice"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/restoredetect"
)

// Peers is what the exchange needs to know of the other members: for each there
// is a namespace that it alone reads.
type Peers interface {
	Listed() <-chan struct{}
	Members() []model.Member
	Subscribe(key func(types.NamespacedName), member func(model.ClusterID)) (cancel func())
}

// Options configure a Hub; all fields are required.
type Options struct {
	// Self is this cluster's id.
	Self model.ClusterID
	// Kubeconfig is a file with access to the hub, held to the rules of peer
	// Secrets: one context, everything inlined. It may come later, and change.
	Kubeconfig string
	// Namespace is Comity's own. The Secret there that the file is mounted from
	// is called model.ExchangeSecret; a renewed token is stored in it.
	Namespace string
	// Scheme knows the exchange's kinds.
	Scheme *runtime.Scheme
	Peers  Peers
	// Wrap sees every request to the hub; nil for none.
	Wrap transport.WrapperFunc
	// Log never receives a credential.
	Log logr.Logger
}

// Hub is the exchange in the hub. Use New, then SetupWithManager.
type Hub struct {
	opts       Options
	link       *link
	namespaces *namespaces
	spaces     *spaces
	client     client.Client // reads from spaces
	local      client.Client // of this member's own cluster
	changed    notify.Notifier
	wake       chan struct{}
	now        func() time.Time
}

// New prepares the exchange; it sends no request and reads no file.
func New(opts Options) (*Hub, error) {
	link := newLink(opts.Kubeconfig, opts.Self)
	mapper := newMapper()
	httpClient := remote.NewClient(link)
	if opts.Wrap != nil {
		httpClient.Transport = opts.Wrap(httpClient.Transport)
	}
	live, err := client.New(link.restConfig(), client.Options{HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("client of the hub: %w", err)
	}
	h := &Hub{
		opts: opts, link: link, wake: make(chan struct{}, 1), now: time.Now,
		namespaces: &namespaces{self: opts.Self, reader: live, now: time.Now, known: map[string]standing{}},
		spaces: newSpaces(opts.Scheme, func(namespace string) (cache.Cache, error) {
			return newCache(link, httpClient, opts, mapper, namespace)
		}),
	}
	h.client, err = client.New(link.restConfig(), client.Options{
		HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper,
		// Of Leases there is one, and nobody is told of its changes.
		Cache: &client.CacheOptions{Reader: h.spaces, DisableFor: []client.Object{&coordinationv1.Lease{}}},
	})
	if err != nil {
		return nil, fmt.Errorf("client of the hub: %w", err)
	}
	return h, h.doubtWithoutMember()
}

func newCache(link *link, httpClient *http.Client, opts Options, mapper apimeta.RESTMapper, namespace string) (cache.Cache, error) {
	return cache.New(link.restConfig(), cache.Options{
		HTTPClient: httpClient, Scheme: opts.Scheme, Mapper: mapper, DefaultTransform: compactslice.Shrink,
		NewInformer:       restoredetect.NewInformer(opts.Log),
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
	})
}

// newMapper knows the few kinds by itself, so that nothing waits for a
// discovery of the hub, and no discovery is repeated while it does not answer.
func newMapper() apimeta.RESTMapper {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	add := func(version schema.GroupVersion, scope apimeta.RESTScope, kinds ...string) {
		for _, kind := range kinds {
			mapper.Add(version.WithKind(kind), scope)
			mapper.Add(version.WithKind(kind+"List"), scope)
		}
	}
	add(exchangev1alpha1.GroupVersion, apimeta.RESTScopeNamespace, "ExportRecord", "ImportRecord", "NamespaceRecord", "MemberRecord")
	add(discoveryv1.SchemeGroupVersion, apimeta.RESTScopeNamespace, "EndpointSlice")
	add(coordinationv1.SchemeGroupVersion, apimeta.RESTScopeNamespace, "Lease")
	add(corev1.SchemeGroupVersion, apimeta.RESTScopeRoot, "Namespace")
	return mapper
}

// doubtWithoutMember has a namespace looked at again when a MemberRecord goes:
// the namespace may be going with it. Made anew it is empty, and must not say
// that everything was published before it was.
func (h *Hub) doubtWithoutMember() error {
	informer, err := h.spaces.GetInformer(context.Background(), &exchangev1alpha1.MemberRecord{})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if last, is := obj.(toolscache.DeletedFinalStateUnknown); is {
			obj = last.Obj
		}
		if record, is := obj.(*exchangev1alpha1.MemberRecord); is {
			h.namespaces.doubt(record.Namespace)
			h.kick()
		}
	}})
	return err
}

// Client reads the records and EndpointSlices in this member's exchange namespaces
// from Cache, and Leases from the hub; it writes to the hub.
func (h *Hub) Client() client.Client { return h.client }

// Cache holds the records and EndpointSlices in this member's exchange namespaces.
func (h *Hub) Cache() cache.Cache { return h.spaces }

// Changed notifies that Problem may return something else, or that an exchange
// namespace was made anew.
func (h *Hub) Changed() *notify.Notifier { return &h.changed }

// Problem says why nothing can be published in a namespace now; "" if it can.
// While the hub does not answer, that is what it was before: what is published
// must not seem to have lost its place.
func (h *Hub) Problem(ctx context.Context, name string) string {
	if err := h.link.problem(); err != nil {
		return err.Error()
	}
	now := h.namespaces.look(ctx, name)
	switch {
	case !now.known:
		return now.unread
	case now.problem != "":
		h.kick()
		return now.problem
	case !h.spaces.isSynced(name, now.uid):
		h.kick()
		return fmt.Sprintf("exchange namespace %s in the hub was not read yet, or was made anew; that is being done", name)
	}
	return ""
}

// SetupWithManager adds the exchange to mgr. It runs on the leader, as all that
// uses it does.
func (h *Hub) SetupWithManager(mgr ctrl.Manager) error {
	h.local = mgr.GetClient()
	return mgr.Add(h)
}

func (h *Hub) kick() {
	select {
	case h.wake <- struct{}{}:
	default: // it is about to look anyway
	}
}
