// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// Indexes of the manager's cache and of that of the exchange. With them the work for one key is
// proportional to that Service's objects and to nothing else.
const (
	// indexService finds slices by the Service that they belong to.
	indexService = "comity.service"
	// indexImport finds derived slices and Services by the import's name.
	indexImport = "comity.import"
	// indexExport finds records and slice copies by the export's namespace/name,
	// in whatever exchange namespace.
	indexExport = "comity.export"
)

// addIndexes adds those of the manager's cache, and those of the cache of the exchange.
func addIndexes(ctx context.Context, own, exchange client.FieldIndexer) error {
	byLabel := func(label string) client.IndexerFunc {
		return func(o client.Object) []string {
			if value := o.GetLabels()[label]; value != "" {
				return []string{value}
			}
			return nil
		}
	}
	byName := func(o client.Object) []string { return []string{o.GetName()} }
	return errors.Join(
		own.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexService, byLabel(discoveryv1.LabelServiceName)),
		own.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexImport, byLabel(model.LabelServiceName)),
		own.IndexField(ctx, &corev1.Service{}, indexImport, byLabel(model.LabelServiceName)),
		exchange.IndexField(ctx, &discoveryv1.EndpointSlice{}, indexExport, func(o client.Object) []string {
			if key, is := model.LabeledExport(o.GetLabels()); is {
				return []string{key.String()}
			}
			return nil
		}),
		exchange.IndexField(ctx, &exchangev1alpha1.ExportRecord{}, indexExport, byName),
		exchange.IndexField(ctx, &exchangev1alpha1.ImportRecord{}, indexExport, byName),
	)
}

// exports lists the keys of the ServiceExports of a namespace, or of all if that is empty.
func (b *base) exports(ctx context.Context, namespace string) ([]types.NamespacedName, error) {
	return notify.ListKeys(ctx, b.client, &mcsv1beta1.ServiceExportList{}, notify.Itself, client.InNamespace(namespace))
}

// concerned is the namespace that a change of a Namespace concerns: this one, or all, which is
// empty, if it is an exchange namespace of this cluster.
func (b *base) concerned(namespace client.Object) string {
	if namespace.GetLabels()[model.LabelExchangeFrom] == string(b.Self) {
		return ""
	}
	return namespace.GetName()
}

// peerKeysIn are what the other members export from a namespace, or from all if that is empty.
func (b *base) peerKeysIn(namespace string) []types.NamespacedName {
	return model.Without(b.Peers.Keys(), func(key types.NamespacedName) bool { return namespace != "" && key.Namespace != namespace })
}

// keyIf is the one key, or none.
func keyIf(key types.NamespacedName, is bool) []types.NamespacedName {
	if is {
		return []types.NamespacedName{key}
	}
	return nil
}

// exported returns the key of the export that a Service, or a slice of one, belongs to, if it
// is exported.
func (b *base) exported(ctx context.Context, o client.Object) []types.NamespacedName {
	key := client.ObjectKeyFromObject(o)
	if _, isSlice := o.(*discoveryv1.EndpointSlice); isSlice {
		key.Name = o.GetLabels()[discoveryv1.LabelServiceName]
	}
	return keyIf(key, key.Name != "" && b.client.Get(ctx, key, &mcsv1beta1.ServiceExport{}) == nil)
}

// copiedSlice returns the key of the export that a slice copy belongs to.
func copiedSlice(_ context.Context, o client.Object) []types.NamespacedName {
	return keyIf(model.LabeledExport(o.GetLabels()))
}

// importedObject returns the key of the import that a derived object belongs to.
// For a Service or slice that has or had a derived name without being derived, it
// returns the imports whose first choice the name of that derived Service is.
func (b *base) importedObject(ctx context.Context, o client.Object) []types.NamespacedName {
	if name := o.GetLabels()[model.LabelServiceName]; name != "" {
		return []types.NamespacedName{{Namespace: o.GetNamespace(), Name: name}}
	}
	service, _, _ := strings.Cut(o.GetName(), ".") // that of a slice, see model.SliceName
	if !strings.HasPrefix(service, "derived-") {
		return nil
	}
	plain := strings.Join(strings.SplitN(service, "-", 3)[:2], "-")
	keys, _ := notify.ListKeys(ctx, b.client, &mcsv1beta1.ServiceImportList{}, notify.Itself, client.InNamespace(o.GetNamespace())) // a cache: it does not fail
	return model.Without(keys, func(key types.NamespacedName) bool { return model.DerivedName(key.Name) != plain })
}

// readLocal reads the export, its Service, the slices of the Service, the
// namespace, and what the policies decide about the export.
func (b *base) readLocal(ctx context.Context, key types.NamespacedName) (decide.LocalExport, error) {
	local := decide.LocalExport{Key: key}
	var err error
	if local.Namespace, err = getNamespace(ctx, b.client, key.Namespace); err != nil {
		return local, err
	}
	export, err := get[mcsv1beta1.ServiceExport](ctx, b.client, key)
	if err != nil || export == nil || export.DeletionTimestamp != nil {
		return local, err
	}
	if local.Service, err = get[corev1.Service](ctx, b.client, key); err != nil {
		return local, err
	}
	if local.Slices, err = listSlices(ctx, b.client, client.InNamespace(key.Namespace), client.MatchingFields{indexService: key.Name}); err != nil {
		return local, err
	}
	local.Export, local.Verdict = export, b.Admitter.Admit(ctx, export)
	if local.Namespace == nil { // whose limit is not known, even if the policies saw it a moment later
		local.Verdict = decision.Verdict{Problem: fmt.Sprintf("Namespace %s is not known here yet", key.Namespace)}
	}
	return local, nil
}

// get reads an object; nil if it does not exist.
func get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, c client.Reader, key types.NamespacedName) (P, error) {
	object := P(new(T))
	if err := c.Get(ctx, key, object); isAbsent(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s %s cannot be read: %w", reflect.TypeFor[T]().Name(), key, err)
	}
	return object, nil
}

// isAbsent reports whether an error says that an object does not exist. A 404 about a kind that is
// not served is no Status of the API server.
func isAbsent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

func getNamespace(ctx context.Context, c client.Reader, name string) (*corev1.Namespace, error) {
	return get[corev1.Namespace](ctx, c, types.NamespacedName{Name: name})
}

// listSlices reads slices without copying them: there may be thousands of
// endpoints, and neither plan nor apply changes what it is given.
func listSlices(ctx context.Context, c client.Reader, opts ...client.ListOption) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := c.List(ctx, &list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	slices, err := pointers(list.Items), error(nil)
	for i := 0; i < len(slices) && err == nil; i++ {
		slices[i], err = compactslice.Open(slices[i])
	}
	return slices, err
}

// getSlice reads a slice; nil if it does not exist.
func getSlice(ctx context.Context, c client.Reader, key types.NamespacedName) (*discoveryv1.EndpointSlice, error) {
	slice, err := get[discoveryv1.EndpointSlice](ctx, c, key)
	if slice == nil || err != nil {
		return nil, err
	}
	return compactslice.Open(slice)
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// Listed reports whether the list of an import, or a derived slice, names a cluster, or that is
// not known: as long as one does, what was imported of that cluster is not removed.
func (c *Controllers) Listed(cluster model.ClusterID) bool {
	ctx, listed := context.Background(), false // a cache: it does not wait
	look := func(names func(metav1.Object) bool) func(client.Object) {
		return func(o client.Object) { listed = listed || names(o) && !c.isGoing(ctx, o.GetNamespace()) }
	}
	isListing := look(func(o metav1.Object) bool { return slices.Contains(model.Listed(o), cluster) })
	err := errors.Join(
		notify.EachListed(ctx, c.client, &corev1.ServiceList{}, isListing, client.HasLabels{model.LabelServiceImported}),
		notify.EachListed(ctx, c.client, &mcsv1beta1.ServiceImportList{}, isListing),
		notify.EachListed(ctx, c.client, &discoveryv1.EndpointSliceList{}, look(model.IsManaged),
			client.HasLabels{model.LabelServiceName}, client.MatchingLabels{model.LabelSourceCluster: string(cluster)}))
	if err != nil {
		ctrl.Log.WithName("peer").Error(err, "it is not known whether imports list a cluster", "peer", cluster)
	}
	return listed || err != nil
}

// isGoing reports whether a namespace is being deleted: nothing is written there any more,
// and what it has goes with it.
func (b *base) isGoing(ctx context.Context, name string) bool {
	namespace, err := getNamespace(ctx, b.client, name)
	return err == nil && (namespace == nil || namespace.DeletionTimestamp != nil)
}

// undefined is why ServiceExports were undefined when that was read last, if they were, and
// until when that is used.
type undefined struct {
	why   string
	until time.Time
}

// exportDefinitionName is the name of the definition.
var exportDefinitionName = "serviceexports." + mcsv1beta1.GroupVersion.Group

// liveTimeout bounds the requests for one export: a worker waits for them.
const liveTimeout = 10 * time.Second

// readLive asks the API server about the ServiceExport of local, and about its Service if
// a cache does not have it: at most four requests. That the definition of ServiceExports is
// missing is used again for a moment, because then every export is asked for: 10,000 exports
// would be as many requests every ten seconds.
func (b *base) readLive(ctx context.Context, local decide.LocalExport) decide.Live {
	if last := b.undefined.Load(); local.Export == nil && last != nil && last.why != "" && b.Clock.Now().Before(last.until) {
		return decide.Live{Read: true, Undefined: last.why}
	}
	bounded, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	live := decide.Live{Read: true}
	export, err := get[mcsv1beta1.ServiceExport](bounded, b.apiReader, local.Key)
	if err == nil && export != nil && export.DeletionTimestamp == nil {
		live.Export = export.UID
		if local.Export != nil && local.Service == nil {
			var service *corev1.Service
			service, err = get[corev1.Service](bounded, b.apiReader, local.Key)
			live.HasService = service != nil && service.DeletionTimestamp == nil
		}
	} else if err == nil || apierrors.IsNotFound(err) {
		if absence := b.readAbsence(bounded, &live); err == nil || live.Undefined != "" { // else the kind is defined, but not served
			err = absence
		}
		b.undefined.Store(&undefined{live.Undefined, b.Clock.Now().Add(b.Retry)})
	}
	if err != nil {
		live.Problem = err.Error()
	}
	return live
}

// readAbsence reads, after a ServiceExport was not found, whether there could be one.
func (b *base) readAbsence(ctx context.Context, live *decide.Live) error {
	definition := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}}
	switch err := b.apiReader.Get(ctx, types.NamespacedName{Name: exportDefinitionName}, definition); {
	case isAbsent(err):
		live.Undefined = fmt.Sprintf("CustomResourceDefinition %s does not exist; apply that of the MCS API again", exportDefinitionName)
		return nil
	case err != nil:
		return fmt.Errorf("CustomResourceDefinition %s cannot be read: %w", exportDefinitionName, err)
	case definition.DeletionTimestamp != nil:
		live.Undefined = fmt.Sprintf("CustomResourceDefinition %s is being deleted; apply that of the MCS API again when it is gone", exportDefinitionName)
		return nil
	}
	live.Defined = definition.CreationTimestamp.Time
	// A list that asks for no version has the one of the store, whichever replica of the
	// API server answers. Namespaces are served as soon as the API server is.
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
	if err := b.apiReader.List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("list Namespaces for the version of the API server: %w", err)
	}
	live.Version = list.ResourceVersion
	return nil
}

// own is this cluster's own export as a source of its import. The API server is asked
// before what the import lists ends.
func (i *importController) own(ctx context.Context, v *decide.ImportView) decide.OwnSource {
	local := v.Local
	entry, listed := decide.OwnEntry(v)
	if i.isIDDoubtful(ctx) && !decide.IsListedAsOwn(v) {
		return decide.OwnSource{State: model.SourceNotRead, Why: i.foreignID()}
	}
	var live decide.Live
	if listed && decide.NeedsOwnLive(local) {
		live = i.readLive(ctx, local)
	}
	var records []*exchangev1alpha1.ExportRecord
	if listed && local.Export == nil || local.Service != nil && local.Verdict.Outcome == decision.Denied {
		var err error
		if records, err = i.records(ctx, local.Key); err != nil {
			return decide.OwnSource{State: model.SourceNotRead, Why: fmt.Sprintf("its ExportRecords cannot be read: %v", err)}
		}
	}
	return decide.Own(local, entry, listed, live, records, v.Now)
}
