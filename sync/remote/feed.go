// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/comity-mcs/comity/sync/compactslice"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/restoredetect"
)

// feed is one kind in one namespace of a peer. Each feed has an
// informer of its own, so that its state and its error are known.
type feed struct {
	kind, resource, namespace string
	// name limits the feed to one object.
	name string
	// without is what is unknown while this feed cannot be read; empty if the feed
	// is required.
	without string
	// listed gets each page of a list, before anything of it can be read; page
	// collects them until the list is complete.
	listed       func(page runtime.Object, continued bool)
	page         map[types.NamespacedName]struct{}
	client       rest.Interface
	informer     toolscache.SharedIndexInformer
	registration toolscache.ResourceEventHandlerRegistration
}

// feeds are what is read from a peer. Element 0 is what every member may read,
// element 1 what only this cluster may.
//
// The Lease and the reports are optional: exports do not depend on them, and a peer
// of an older version does not have them or does not let this cluster read them. The
// peer is synced without them, and State still returns why they cannot be read.
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

// What is not known without the optional feeds.
const (
	withoutLease   = "whether its agent runs is not known"
	withoutReports = "what it imports is not known"
)

// indexExport finds the slices of an export by its namespace/name.
const indexExport = "export"

func newFeeds(c *Connection) (feeds, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(discoveryv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), exchangev1alpha1.AddToScheme(scheme)); err != nil {
		return feeds{}, err
	}
	config := withoutToken(c.opts.Config)
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(peerQPS, peerBurst)
	open := opener{connection: c, config: config, scheme: scheme}
	shared, scoped := model.ExchangeNamespace(c.opts.ID), model.ScopedExchangeNamespace(c.opts.ID, c.opts.Self)
	out := feeds{
		namespaces: &feed{kind: "NamespaceRecords", resource: "namespacerecords", namespace: shared},
		members:    &feed{kind: "MemberRecords", resource: "memberrecords", namespace: shared},
		leases:     &feed{kind: "Leases", resource: "leases", namespace: shared, name: string(c.opts.ID), without: withoutLease},
		reports:    &feed{kind: "ImportRecords", resource: "importrecords", namespace: scoped, without: withoutReports},
	}
	for i, namespace := range []string{shared, scoped} {
		out.exports[i] = &feed{kind: "ExportRecords", resource: "exportrecords", namespace: namespace}
		out.slices[i] = &feed{kind: "EndpointSlices", resource: "endpointslices", namespace: namespace}
	}
	for i, f := range out.exports {
		other := out.exports[1-i]
		f.listed = func(page runtime.Object, continued bool) { c.exportsListed(f, other, page, continued) }
		open.feed(f, &exchangev1alpha1.ExportRecord{}, &exchangev1alpha1.ExportRecordList{}, c.exportHandler())
		open.feed(out.slices[i], &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}, c.sliceHandler())
	}
	open.feed(out.members, &exchangev1alpha1.MemberRecord{}, &exchangev1alpha1.MemberRecordList{}, c.memberHandler())
	open.feed(out.namespaces, &exchangev1alpha1.NamespaceRecord{}, &exchangev1alpha1.NamespaceRecordList{}, c.namespaceHandler())
	open.feed(out.leases, &coordinationv1.Lease{}, &coordinationv1.LeaseList{}, c.leaseHandler())
	open.feed(out.reports, &exchangev1alpha1.ImportRecord{}, &exchangev1alpha1.ImportRecordList{}, c.reportHandler())
	return out, open.err
}

// opener makes the informers of feeds and keeps the first error.
type opener struct {
	connection *Connection
	config     *rest.Config
	scheme     *runtime.Scheme
	err        error
}

func (o *opener) feed(f *feed, object, list runtime.Object, handler toolscache.ResourceEventHandler) {
	if o.err != nil {
		return
	}
	kinds, _, err := o.scheme.ObjectKinds(object)
	if err != nil {
		o.err = err
		return
	}
	// Protobuf where the type has it. Kinds are known beforehand, so nothing is
	// discovered: a peer whose discovery is broken can still be read.
	client, err := apiutil.RESTClientForGVK(kinds[0], false, false, o.config, serializer.NewCodecFactory(o.scheme), o.connection.http)
	if err != nil {
		o.err = err
		return
	}
	o.err = f.open(o.connection, client, runtime.NewParameterCodec(o.scheme), object, list, handler)
}

func (f *feed) open(c *Connection, client rest.Interface, codec runtime.ParameterCodec, object, list runtime.Object, handler toolscache.ResourceEventHandler) error {
	f.client = client
	indexers := toolscache.Indexers{}
	if f.resource == "endpointslices" {
		indexers[indexExport] = indexSlice
	}
	reader := f.reader(c, client, codec, list)
	var source toolscache.ListerWatcher = reader
	if f.listed != nil {
		source = plainLists{reader}
	}
	f.informer = toolscache.NewSharedIndexInformerWithOptions(source, object,
		toolscache.SharedIndexInformerOptions{Indexers: indexers, ObjectDescription: f.kind + " of cluster " + string(c.opts.ID)})

	// feedResult reports failures; the default handler would log each retry.
	ignore := func(context.Context, *toolscache.Reflector, error) {}
	if err := errors.Join(f.informer.SetWatchErrorHandlerWithContext(ignore), f.informer.SetTransform(trim)); err != nil {
		return err
	}
	var err error
	f.registration, err = f.informer.AddEventHandler(handler)
	return err
}

// reader lists and watches, and gives each result to c.
func (f *feed) reader(c *Connection, client rest.Interface, codec runtime.ParameterCodec, list runtime.Object) *toolscache.ListWatch {
	request := func(opts *metav1.ListOptions) *rest.Request {
		f.limit(opts)
		// The informer retries with its own backoff; retries of the request would only
		// delay the report of the failure.
		return client.Get().Namespace(f.namespace).Resource(f.resource).VersionedParams(opts, codec).MaxRetries(1)
	}
	read := func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		into := reflect.New(reflect.TypeOf(list).Elem()).Interface().(runtime.Object)
		return into, request(&opts).Do(ctx).Into(into)
	}
	restored := func(found *restoredetect.Found) { c.opts.Hooks.Restored(c, found) }
	readAll := restoredetect.CheckedList(read, restored)
	open := restoredetect.CheckedWatch(read, func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		opts.Watch, opts.AllowWatchBookmarks = true, true
		return request(&opts).Watch(ctx)
	}, restored)
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			into, err := readAll(ctx, opts)
			// Success is only noted by the watch: where lists are allowed and
			// watches are not, the state must not flap.
			if err != nil {
				c.feedResult(ctx, f, err)
				return nil, err
			}
			if f.listed != nil {
				if err := c.confirmMember(ctx); err != nil {
					return nil, err // the feed of MemberRecords reports why
				}
				f.listed(into, opts.Continue != "")
			}
			return into, nil
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := open(ctx, opts)
			if err == nil && reflect.TypeOf(w) == emptyWatch {
				err = errClosedEarly
			}
			c.feedResult(ctx, f, err)
			if err != nil {
				return nil, err
			}
			return w, nil
		},
	}
}

// limit restricts opts to what the feed reads.
func (f *feed) limit(opts *metav1.ListOptions) {
	if f.name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()
	}
	if f.resource == "endpointslices" {
		opts.LabelSelector = discoveryv1.LabelManagedBy + "=" + model.ManagedBy
	}
	// Version 0 is whatever the server has cached. If that lags behind another
	// server, exports that were just read would seem to be deleted.
	if f.listed != nil && opts.ResourceVersion == "0" {
		opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
	}
}

// plainLists makes an informer list rather than stream, so that a list is checked
// as a whole before it replaces anything.
type plainLists struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go asks.
func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

// client-go treats a connection that was closed before the response as a watch
// that ended early, and returns a watch without events.
var (
	emptyWatch     = reflect.TypeOf(watch.NewEmptyWatch())
	errClosedEarly = errors.New("the connection is closed before there is an answer")
)

// trim drops the managed fields, which no reader uses, and packs EndpointSlices,
// which are most of what a peer publishes.
func trim(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return compactslice.Transform(obj)
}
