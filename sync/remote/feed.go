// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/listwatch"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

// feed is one kind in one namespace of a peer. Each feed has a
// reflector of its own, so that its state and its error are known, and is its store.
type feed struct {
	connection *Connection
	// kind is for a reader, such as ExportRecords; the API calls it the same in lower case.
	kind, namespace string
	// name limits the feed to one object.
	name string
	// without is what is unknown while this feed cannot be read; empty if the feed
	// is required.
	without string
	// failure is why it cannot be read; the zero value if it can. It needs the mutex of connection.
	failure Failure
	// confirmed: the MemberRecord is read again before a list is used.
	confirmed bool
	// lists are those that are read at the same time, and flow is how fast responses are read.
	// Leases, by which a peer counts as alive, do not wait until everything else was read.
	lists  *semaphore.Weighted
	flow   *flow
	budget *budget.Feed
	// exceeded is the limit that a response or event exceeded, until a list is within the
	// limits again.
	exceeded      atomic.Pointer[budget.Exceeded]
	object, empty runtime.Object // one of its objects, and a list of them
	// watching is the watch that the reflector follows, and meter counts its events.
	watching  watch.Interface
	meter     *meter
	client    rest.Interface
	reflector *toolscache.Reflector
	store     toolscache.Indexer
	// listed is set once the first list is in store, and the owner notified of it.
	listed atomic.Bool
}

// feeds are what is read from a peer. Element 0 is what every member may read,
// element 1 what only this cluster may.
//
// The Lease and the reports are optional: exports do not depend on them. The peer is
// synced without them, and Problem still returns why they cannot be read.
type feeds struct {
	exports    [2]*feed
	slices     [2]*feed
	namespaces *feed
	members    *feed
	leases     *feed
	reports    *feed
}

// all are the feeds, those that are required first.
func (f *feeds) all() []*feed {
	return []*feed{f.members, f.exports[0], f.exports[1], f.slices[0], f.slices[1], f.namespaces, f.leases, f.reports}
}

func (f *feed) isRequired() bool { return f.without == "" }

// Pages of lists, in objects.
const (
	recordPage = 250
	slicePage  = 100
)

// maxLists is how many lists are read of one peer at the same time, besides that of its Lease:
// a page takes several times its size until it is decoded.
const maxLists = 2

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
		namespaces: &feed{object: &exchangev1alpha1.NamespaceRecord{}, namespace: shared},
		members:    &feed{object: &exchangev1alpha1.MemberRecord{}, namespace: shared, name: string(c.opts.ID)},
		leases: &feed{
			object: &coordinationv1.Lease{}, namespace: shared, name: string(c.opts.ID), without: "whether its agent runs is not known",
			lists: semaphore.NewWeighted(1), flow: newFlow(smallBytes, readSize, " of Leases"),
		},
		reports: &feed{object: &exchangev1alpha1.ImportRecord{}, namespace: scoped, without: "what it imports is not known"},
	}
	for i, namespace := range []string{shared, scoped} {
		out.exports[i] = &feed{object: &exchangev1alpha1.ExportRecord{}, namespace: namespace, confirmed: true}
		out.slices[i] = &feed{object: &discoveryv1.EndpointSlice{}, namespace: namespace}
	}
	lists := semaphore.NewWeighted(maxLists)
	for _, f := range out.all() {
		f.connection, f.lists, f.flow = c, cmp.Or(f.lists, lists), cmp.Or(f.flow, c.transport.flow)
		if err := f.open(scheme, config); err != nil {
			return feeds{}, err
		}
	}
	return out, nil
}

// open makes the client and the reflector of f. Kinds are known beforehand, so nothing is
// discovered: a peer whose discovery is broken can still be read.
func (f *feed) open(scheme *runtime.Scheme, config *rest.Config) error {
	kind, err := apiutil.GVKForObject(f.object, scheme)
	if err != nil {
		return err
	}
	if f.empty, err = scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List")); err != nil {
		return err
	}
	f.kind = kind.Kind + "s"
	c, version := f.connection, kind.GroupVersion()
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &version
	if version.Group != exchangev1alpha1.GroupVersion.Group { // custom resources have no protobuf
		config.ContentType = runtime.ContentTypeProtobuf
	}
	codecs := serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}
	config.NegotiatedSerializer = countingCodecs{codecs, f.exceed}
	if f.client, err = rest.RESTClientForConfigAndClient(config, &http.Client{Transport: c.transport}); err != nil {
		return err
	}
	f.budget = c.budget.Feed(f.kind)
	f.store = toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{indexInvalid: c.indexInvalid, indexExport: indexSlice})
	// A feed streams lists by itself: so a list is counted and checked as a whole before it
	// replaces anything.
	source := listwatch.PlainLists{ListWatch: &toolscache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch}}
	f.reflector = toolscache.NewReflectorWithOptions(source, f.object, f, toolscache.ReflectorOptions{Name: f.kind + " of cluster " + string(c.opts.ID)})
	return nil
}

// trim drops the managed fields, which no reader uses, bounds ExportRecords, and bounds
// and packs EndpointSlices, which are most of what a peer publishes.
func trim(obj any) (any, error) {
	obj.(metav1.Object).SetManagedFields(nil)
	switch o := obj.(type) {
	case *exchangev1alpha1.ExportRecord:
		return exchange.BoundRecord(o), nil
	case *discoveryv1.EndpointSlice:
		o.GenerateName = "" // what is packed is in it: a peer could have a small text unpacked to gigabytes
		obj = exchange.BoundSlice(o)
	}
	return compactslice.Transform(obj)
}

// request is one for a list or a watch of what the feed reads. UntilAnswered and the reflector
// retry; retries of the request would only delay the report of the failure.
func (f *feed) request(opts metav1.ListOptions) *rest.Request {
	page := int64(recordPage)
	if f.kind == "EndpointSlices" {
		opts.LabelSelector, page = discoveryv1.LabelManagedBy+"="+model.ManagedBy, slicePage
	}
	if f.name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.name).String()
	}
	if !opts.Watch && opts.Limit != 1 {
		opts.Limit = page
		// With a limit, a version alone means exactly that version. A reflector whose watch
		// failed because its version is too old would list that version again for ever.
		if opts.ResourceVersion != "" && opts.Continue == "" {
			opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
		}
	}
	return f.client.Get().Namespace(f.namespace).Resource(strings.ToLower(f.kind)).VersionedParams(&opts, metav1.ParameterCodec).MaxRetries(1)
}

// get makes one request for a list.
func (f *feed) get(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if err := f.lists.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer f.lists.Release(1)
	into := f.empty.DeepCopyObject()
	m := &meter{limit: f.connection.opts.Limits.ResponseBytes, what: "one response", flow: f.flow}
	return into, f.request(opts).Do(context.WithValue(ctx, meterKey{}, m)).Into(into)
}

// events makes one request for a watch. The meter is to be reset with each event.
func (f *feed) events(ctx context.Context, opts metav1.ListOptions) (watch.Interface, *meter, error) {
	opts.Watch, opts.AllowWatchBookmarks = true, true
	m := &meter{limit: f.connection.opts.Limits.EventBytes, what: "one event", flow: f.flow, exceed: f.exceed}
	w, err := f.request(opts).Watch(context.WithValue(ctx, meterKey{}, m))
	if err == nil && reflect.TypeOf(w) == emptyWatch {
		err = errClosedEarly
	}
	return w, m, err
}

func (f *feed) restored(found error) {
	f.connection.opts.Hooks.Restored(f.connection, found)
}

// list lists for the reflector, by a stream or else by pages.
func (f *feed) list(ctx context.Context, opts metav1.ListOptions) (list runtime.Object, err error) {
	if opts.Continue == "" {
		list, err = f.stream(ctx, opts.ResourceVersion)
	}
	if list == nil && err == nil {
		list, err = f.page(ctx, opts)
	}
	// Success is only noted by the watch: where lists are allowed and watches are not, the
	// state must not flap.
	if err != nil {
		f.result(ctx, err)
		return nil, err
	}
	if f.confirmed {
		if err := f.connection.confirmMember(ctx); err != nil {
			return nil, err // the feed of MemberRecords reports why
		}
	}
	return list, nil
}

// streamTimeout bounds a list that is streamed. One that takes longer is read by pages.
const streamTimeout = 30 * time.Second

// stream reads a list as the first events of a watch. An API server sends them from memory, and
// takes each page but the first from etcd, which costs it four times as much. It returns nil if
// that fails other than by a limit: pages work with any API server, and show why they fail.
func (f *feed) stream(ctx context.Context, notOlderThan string) (runtime.Object, error) {
	if err := f.lists.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer f.lists.Release(1)
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	w, m, err := f.events(ctx, metav1.ListOptions{
		ResourceVersion: notOlderThan, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, SendInitialEvents: new(true),
	})
	if err != nil {
		return nil, nil
	}
	defer w.Stop()
	f.exceeded.Store(nil) // of what came before this list
	f.budget.Begin()
	objects := map[string]runtime.Object{}
	for event := range w.ResultChan() {
		if event.Type == watch.Error || reflect.TypeOf(event.Object) != reflect.TypeOf(f.object) || f.accept(event, m) != nil {
			break
		}
		object := event.Object.(metav1.Object) // as all of its kind are
		switch event.Type {
		case watch.Added, watch.Modified:
			objects[object.GetName()] = event.Object
		case watch.Deleted:
			delete(objects, object.GetName())
		case watch.Bookmark:
			if object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
				return nil, nil // an API server sends no other one before the end of the list
			}
			f.complete()
			return &metainternalversion.List{ListMeta: metav1.ListMeta{ResourceVersion: object.GetResourceVersion()}, Items: slices.Collect(maps.Values(objects))}, nil
		}
	}
	if over := f.exceeded.Load(); over != nil {
		return nil, over
	}
	return nil, nil
}

// page reads one page of a list, and counts what it has.
func (f *feed) page(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list := listwatch.Checked(f.get, f.get, f.restored)
	page, err := listwatch.UntilAnswered(ctx, unanswered, func() (runtime.Object, error) {
		page, err := list(ctx, opts)
		if unanswered(err) {
			f.result(ctx, err)
		}
		return page, err
	})
	if err != nil {
		return nil, err
	}
	if opts.Continue == "" {
		f.budget.Begin()
	}
	objects, _ := apimeta.ExtractList(page) // client-go decoded it, so it is a list
	if over := f.budget.Page(objects); over != nil {
		return nil, over
	}
	if list, _ := apimeta.ListAccessor(page); list.GetContinue() == "" {
		f.complete()
	}
	return page, nil
}

// complete ends a list that is within the limits.
func (f *feed) complete() {
	f.budget.End()
	f.exceeded.Store(nil)
}

// watch watches for the reflector, unless the feed is beyond its limits.
func (f *feed) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if over := f.exceeded.Load(); over != nil { // a list shows whether that has changed
		f.result(ctx, over)
		return nil, over
	}
	open := listwatch.Checked(f.get, func(ctx context.Context, opts metav1.ListOptions) (w watch.Interface, err error) {
		w, f.meter, err = f.events(ctx, opts)
		return w, err
	}, f.restored)
	return listwatch.UntilAnswered(ctx, unanswered, func() (w watch.Interface, err error) {
		f.watching, err = open(ctx, opts)
		f.result(ctx, err)
		return f.watching, err
	})
}

// client-go treats a connection that was closed before the response as a watch
// that ended early, and returns a watch without events.
var (
	emptyWatch     = reflect.TypeOf(watch.NewEmptyWatch())
	errClosedEarly = errors.New("the connection is closed before there is an answer")
)

// unanswered reports whether a peer gave no answer. One that is beyond a limit is an answer.
func unanswered(err error) bool {
	return !errors.As(err, new(*budget.Exceeded)) && (errors.Is(err, errClosedEarly) || listwatch.Unanswered(err))
}
