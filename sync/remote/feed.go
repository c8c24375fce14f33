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

// feed is one kind in one namespace of a peer. Feeds are plain informers rather
// than one cache, so that it is known of each whether it was read, and why not.
type feed struct {
	kind, resource, namespace string
	// name limits the feed to one object.
	name string
	// without says what is not known as long as this feed alone cannot be read;
	// empty if nothing may be concluded without it.
	without string
	// listed is told of each page of a list, before anything of it can be read;
	// page is what it gathers until the list is complete.
	listed       func(page runtime.Object, continued bool)
	page         map[types.NamespacedName]struct{}
	client       rest.Interface
	informer     toolscache.SharedIndexInformer
	registration toolscache.ResourceEventHandlerRegistration
}

// feeds are what is read of a peer. Element 0 is what every member may read,
// element 1 what this cluster alone may.
//
// The Lease and the reports say nothing of what the peer exports, and a peer
// that runs an older version, or was joined by one, has no such kind or does
// not let us read it. So these two are optional: the peer counts as read
// without them, whatever the cause, and the cause is its problem all the same.
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

// opener makes the informers of feeds and keeps the first thing that went wrong.
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

	// Failures are told by feedResult; the default handler would log each retry.
	ignore := func(context.Context, *toolscache.Reflector, error) {}
	if err := errors.Join(f.informer.SetWatchErrorHandlerWithContext(ignore), f.informer.SetTransform(trim)); err != nil {
		return err
	}
	var err error
	f.registration, err = f.informer.AddEventHandler(handler)
	return err
}

// reader lists and watches, and tells c how that goes.
func (f *feed) reader(c *Connection, client rest.Interface, codec runtime.ParameterCodec, list runtime.Object) *toolscache.ListWatch {
	request := func(opts *metav1.ListOptions) *rest.Request {
		f.limit(opts)
		// The informer tries again by itself, and later each time; a request that
		// does so too would only put off the news.
		return client.Get().Namespace(f.namespace).Resource(f.resource).VersionedParams(opts, codec).MaxRetries(1)
	}
	read := func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		into := reflect.New(reflect.TypeOf(list).Elem()).Interface().(runtime.Object)
		return into, request(&opts).Do(ctx).Into(into)
	}
	restored := func(found *restoredetect.Found) { c.opts.Hooks.Restored(c, found) }
	readAll := restoredetect.CheckedList(read, restored)
	open := restoredetect.Checked(read, func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
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
					return nil, err // the feed of MemberRecords tells why
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

// limit narrows what is asked for.
func (f *feed) limit(opts *metav1.ListOptions) {
	if f.name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()
	}
	if f.resource == "endpointslices" {
		opts.LabelSelector = discoveryv1.LabelManagedBy + "=" + model.ManagedBy
	}
	// Version 0 is whatever the server has at hand. From one that lags behind
	// another, exports that were just read would seem to have vanished.
	if f.listed != nil && opts.ResourceVersion == "0" {
		opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
	}
}

// plainLists makes an informer list what it could also stream, so that a list
// can be looked at as a whole before it replaces anything.
type plainLists struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go asks.
func (plainLists) IsWatchListSemanticsUnSupported() bool { return true }

// client-go takes a connection that is closed before the answer for a watch
// that ended early, and hides it behind a watch without events.
var (
	emptyWatch     = reflect.TypeOf(watch.NewEmptyWatch())
	errClosedEarly = errors.New("the connection is closed before there is an answer")
)

// trim drops what a reader never looks at and what makes up much of an object,
// and packs the slices, which are most of what a peer publishes.
func trim(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return compactslice.Transform(obj)
}
