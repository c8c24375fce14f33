// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Reasons for which a peer cannot be read.
const (
	ReasonUnreachable      = "Unreachable"
	ReasonUnauthorized     = "Unauthorized"
	ReasonForbidden        = "Forbidden"
	ReasonNotInstalled     = "NotInstalled"
	ReasonMemberUnverified = "MemberUnverified"
)

// feed is one kind in one namespace of a peer. Feeds are plain informers rather
// than one cache, so that it is known of each whether it was read, and why not.
type feed struct {
	kind, resource, namespace string
	informer                  toolscache.SharedIndexInformer
	registration              toolscache.ResourceEventHandlerRegistration
}

// feeds are what is read of a peer. Element 0 is what every member may read,
// element 1 what this cluster alone may.
type feeds struct {
	exports    [2]*feed
	slices     [2]*feed
	namespaces *feed
	members    *feed
}

func (f *feeds) all() []*feed {
	return []*feed{f.members, f.exports[0], f.exports[1], f.slices[0], f.slices[1], f.namespaces}
}

// indexExport finds the slices of an export by its namespace/name.
const indexExport = "export"

func newFeeds(c *connection) (feeds, error) {
	var out feeds
	scheme := runtime.NewScheme()
	if err := errors.Join(discoveryv1.AddToScheme(scheme), exchangev1alpha1.AddToScheme(scheme)); err != nil {
		return out, err
	}
	records, err := clientFor(c, scheme, exchangev1alpha1.GroupVersion.WithKind("ExportRecord"))
	if err != nil {
		return out, err
	}
	core, err := clientFor(c, scheme, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
	if err != nil {
		return out, err
	}
	shared := model.ExchangeNamespace(c.id)
	for i, namespace := range []string{shared, model.ScopedExchangeNamespace(c.id, c.self)} {
		out.exports[i] = &feed{kind: "ExportRecords", resource: "exportrecords", namespace: namespace}
		out.slices[i] = &feed{kind: "EndpointSlices", resource: "endpointslices", namespace: namespace}
	}
	out.namespaces = &feed{kind: "NamespaceRecords", resource: "namespacerecords", namespace: shared}
	out.members = &feed{kind: "MemberRecords", resource: "memberrecords", namespace: shared}

	err = errors.Join(
		out.members.open(c, records, scheme, &exchangev1alpha1.MemberRecord{}, &exchangev1alpha1.MemberRecordList{}, c.memberHandler()),
		out.namespaces.open(c, records, scheme, &exchangev1alpha1.NamespaceRecord{}, &exchangev1alpha1.NamespaceRecordList{}, c.namespaceHandler()),
	)
	for i := range out.exports {
		err = errors.Join(err,
			out.exports[i].open(c, records, scheme, &exchangev1alpha1.ExportRecord{}, &exchangev1alpha1.ExportRecordList{}, c.exportHandler()),
			out.slices[i].open(c, core, scheme, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}, c.sliceHandler()),
		)
	}
	return out, err
}

// clientFor speaks protobuf where the type has it. Kinds are known beforehand,
// so nothing is discovered: a peer whose discovery is broken can still be read.
func clientFor(c *connection, scheme *runtime.Scheme, gvk schema.GroupVersionKind) (rest.Interface, error) {
	return apiutil.RESTClientForGVK(gvk, false, false, c.config, serializer.NewCodecFactory(scheme), c.http)
}

func (f *feed) open(c *connection, client rest.Interface, scheme *runtime.Scheme, object, list runtime.Object, handler toolscache.ResourceEventHandler) error {
	indexers := toolscache.Indexers{}
	selector := ""
	if f.resource == "endpointslices" {
		selector = discoveryv1.LabelManagedBy + "=" + model.ManagedBy
		indexers[indexExport] = indexSlice
	}
	codec := runtime.NewParameterCodec(scheme)
	request := func(opts *metav1.ListOptions) *rest.Request {
		opts.LabelSelector = selector
		// The informer tries again by itself, and later each time; a request that
		// does so too would only put off the news.
		return client.Get().Namespace(f.namespace).Resource(f.resource).VersionedParams(opts, codec).MaxRetries(1)
	}
	f.informer = toolscache.NewSharedIndexInformerWithOptions(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			bounded, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			into := reflect.New(reflect.TypeOf(list).Elem()).Interface().(runtime.Object)
			err := request(&opts).Do(bounded).Into(into)
			// Success is only noted by the watch: where lists are allowed and
			// watches are not, the state must not flap.
			if err != nil {
				c.feedResult(ctx, f, err)
				return nil, err
			}
			return into, nil
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch, opts.AllowWatchBookmarks = true, true
			w, err := request(&opts).Watch(ctx)
			if err == nil && reflect.TypeOf(w) == emptyWatch {
				err = errHungUp
			}
			c.feedResult(ctx, f, err)
			if err != nil {
				return nil, err
			}
			return w, nil
		},
	}, object, toolscache.SharedIndexInformerOptions{Indexers: indexers, ObjectDescription: f.kind + " of cluster " + string(c.id)})

	// Failures are told by feedResult; the default handler would log each retry.
	silent := func(context.Context, *toolscache.Reflector, error) {}
	if err := errors.Join(f.informer.SetWatchErrorHandlerWithContext(silent), f.informer.SetTransform(trim)); err != nil {
		return err
	}
	var err error
	f.registration, err = f.informer.AddEventHandler(handler)
	return err
}

// client-go takes a connection that is closed before the answer for a watch
// that ended early, and hides it behind a watch without events.
var (
	emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())
	errHungUp  = errors.New("the connection is closed before there is an answer")
)

// trim drops what a reader never looks at and what makes up much of an object.
func trim(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return obj, nil
}

// describe says why f cannot be read, without passing on text that the peer's
// server wrote: that would let a peer write into our events.
func describe(id model.ClusterID, f *feed, err error) failure {
	what := fmt.Sprintf("%s in namespace %s of cluster %s: ", f.kind, f.namespace, id)
	var status apierrors.APIStatus
	switch {
	case apierrors.IsForbidden(err):
		return failure{ReasonForbidden, what + "reading is forbidden; expected the Role that joining makes; remedy: run kubectl comity join again"}
	case apierrors.IsUnauthorized(err):
		return failure{ReasonUnauthorized, what + "the token is not accepted (expired or revoked); expected a valid one; remedy: run kubectl comity join again"}
	case apierrors.IsNotFound(err):
		return failure{ReasonNotInstalled, what + "the kind is unknown there; expected Comity's CRDs; remedy: install Comity in that cluster"}
	case errors.As(err, &status):
		return failure{ReasonUnreachable, fmt.Sprintf("%sthe server answers %d; expected a list; what was read before is kept; remedy: check that API server", what, status.Status().Code)}
	}
	return failure{ReasonUnreachable, fmt.Sprintf("%sthe server cannot be reached (%s); what was read before is kept; remedy: check the address in the peer Secret and the network",
		what, shorten(err.Error()))}
}

func shorten(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return strings.Trim(strconv.Quote(strings.ToValidUTF8(s, "?")), `"`)
}

// quoteShort makes a peer's string fit for a message.
func quoteShort(s string) string { return `"` + shorten(s) + `"` }
