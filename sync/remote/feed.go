// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

// feed is one kind in one namespace of a peer. Each feed has an
// informer of its own, so that its state and its error are known.
type feed struct {
	connection *Connection
	// kind is for a reader, such as ExportRecords, resource what the API calls it.
	kind, resource, namespace string
	// name limits the feed to one object.
	name string
	// without is what is unknown while this feed cannot be read; empty if the feed
	// is required.
	without string
	// confirmed: the MemberRecord is read again before a list is used.
	confirmed bool
	// check says what is wrong with a record of the feed; nil if all are valid.
	check  func(any) error
	budget *budget.Feed
	// exceeded is the limit that a response or event exceeded, until a list is within the
	// limits again.
	exceeded     atomic.Pointer[budget.Exceeded]
	object       reflect.Type // of what an event has
	newList      func() runtime.Object
	client       rest.Interface
	informer     toolscache.SharedIndexInformer
	registration toolscache.ResourceEventHandlerRegistration
}

// feeds are what is read from a peer. Element 0 is what every member may read,
// element 1 what only this cluster may.
//
// The Lease and the reports are optional: exports do not depend on them. The peer is
// synced without them, and State still returns why they cannot be read.
type feeds struct {
	exports    [2]*feed
	slices     [2]*feed
	namespaces *feed
	members    *feed
	leases     *feed
	reports    *feed
}

func (f *feeds) required() []*feed {
	return []*feed{f.members, f.exports[0], f.exports[1], f.slices[0], f.slices[1], f.namespaces}
}

func (f *feeds) optional() []*feed { return []*feed{f.leases, f.reports} }

// Pages of lists, in objects.
const (
	recordPage = 250
	slicePage  = 100
)

// indexExport finds the slices of an export by its namespace/name.
const indexExport = "export"

func newFeeds(c *Connection) (feeds, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(discoveryv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), exchangev1alpha1.AddToScheme(scheme)); err != nil {
		return feeds{}, err
	}
	config := rest.CopyConfig(c.opts.Config)
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(peerQPS, peerBurst)
	shared, scoped := model.ExchangeNamespace(c.opts.ID), model.ScopedExchangeNamespace(c.opts.ID, c.opts.Self)
	out := feeds{
		namespaces: &feed{namespace: shared, check: checking(c.checkNamespace)},
		members:    &feed{namespace: shared, name: string(c.opts.ID)},
		leases:     &feed{namespace: shared, name: string(c.opts.ID), without: "whether its agent runs is not known"},
		reports:    &feed{namespace: scoped, check: checking(c.checkReport), without: "what it imports is not known"},
	}
	var failed error
	open := func(f *feed, object runtime.Object, handler toolscache.ResourceEventHandler) {
		f.connection = c
		failed = errors.Join(failed, f.open(scheme, config, object, handler))
	}
	export := func(key types.NamespacedName) { c.opts.Hooks.Export(c, key) }
	for i, namespace := range []string{shared, scoped} {
		out.exports[i] = &feed{namespace: namespace, confirmed: true, check: checking(c.checkExport)}
		out.slices[i] = &feed{namespace: namespace}
		open(out.exports[i], &exchangev1alpha1.ExportRecord{}, c.recordHandler(out.exports[i], keyOf(export)))
		open(out.slices[i], &discoveryv1.EndpointSlice{}, c.sliceHandler())
	}
	open(out.members, &exchangev1alpha1.MemberRecord{}, c.memberHandler())
	open(out.namespaces, &exchangev1alpha1.NamespaceRecord{}, c.recordHandler(out.namespaces, c.opts.Hooks.Namespace))
	open(out.leases, &coordinationv1.Lease{}, c.leaseHandler())
	open(out.reports, &exchangev1alpha1.ImportRecord{}, c.recordHandler(out.reports, keyOf(c.opts.Hooks.Report)))
	return out, failed
}

// open makes the client and the informer of f. Kinds are known beforehand, so nothing is
// discovered: a peer whose discovery is broken can still be read.
func (f *feed) open(scheme *runtime.Scheme, config *rest.Config, object runtime.Object, handler toolscache.ResourceEventHandler) error {
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return err
	}
	f.kind, f.resource, f.object = kind.Kind+"s", strings.ToLower(kind.Kind)+"s", reflect.TypeOf(object)
	f.newList = func() runtime.Object {
		list, _ := scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List")) // each kind has one
		return list
	}
	c, version := f.connection, kind.GroupVersion()
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &version
	if version.Group != exchangev1alpha1.GroupVersion.Group { // custom resources have no protobuf
		config.ContentType = runtime.ContentTypeProtobuf
	}
	codecs := serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}
	config.NegotiatedSerializer = countingCodecs{codecs, &f.exceeded}
	if f.client, err = rest.RESTClientForConfigAndClient(config, &http.Client{Transport: c.transport}); err != nil {
		return err
	}
	f.budget = c.budget.Feed(f.kind, f.resource)
	indexers := toolscache.Indexers{}
	if f.resource == "endpointslices" {
		indexers[indexExport] = indexSlice
	}
	if f.check != nil {
		indexers[indexInvalid] = f.indexInvalid
	}
	source := plainLists{&toolscache.ListWatch{ListWithContextFunc: f.page, WatchFuncWithContext: f.watch}}
	f.informer = toolscache.NewSharedIndexInformerWithOptions(source, object,
		toolscache.SharedIndexInformerOptions{Indexers: indexers, ObjectDescription: f.kind + " of cluster " + string(c.opts.ID)})

	// result reports failures; the default handler would log each retry.
	ignore := func(context.Context, *toolscache.Reflector, error) {}
	if err := errors.Join(f.informer.SetWatchErrorHandlerWithContext(ignore), f.informer.SetTransform(trim)); err != nil {
		return err
	}
	f.registration, err = f.informer.AddEventHandler(handler)
	return err
}

// limit restricts opts to what the feed reads.
func (f *feed) limit(opts *metav1.ListOptions) {
	if f.name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()
	}
	if f.resource == "endpointslices" {
		opts.LabelSelector = discoveryv1.LabelManagedBy + "=" + model.ManagedBy
	}
	// Version 0 is whatever the server has cached. If that is older than the cache of another
	// server, exports that were just read would seem to be deleted.
	// And a server ignores the limit of a list of version 0.
	if opts.ResourceVersion == "0" && !opts.Watch {
		opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
	}
	if opts.Watch || opts.Limit == 1 {
		return
	}
	opts.Limit = recordPage
	if f.resource == "endpointslices" {
		opts.Limit = slicePage
	}
	// With a limit, a version alone means exactly that version. An informer whose watch
	// failed because its version is too old would list that version again for ever.
	if opts.ResourceVersion != "" && opts.Continue == "" {
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
}

// plainLists makes an informer list rather than stream, so that a list is counted and
// checked as a whole before it replaces anything.
type plainLists struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go asks.
func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

// trim drops the managed fields, which no reader uses, bounds ExportRecords, and bounds
// and packs EndpointSlices, which are most of what a peer publishes.
func trim(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	switch o := obj.(type) {
	case *exchangev1alpha1.ExportRecord:
		return exchange.BoundRecord(o), nil
	case *discoveryv1.EndpointSlice:
		obj = exchange.BoundSlice(o)
	}
	return compactslice.Transform(obj)
}
