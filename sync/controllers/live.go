// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// liveReader asks the API server about one ServiceExport, at most four requests. That the
// definition of ServiceExports is missing is used again for a moment, because then every
// export is asked for: 10,000 exports would be as many requests every ten seconds.
type liveReader struct {
	reader client.Reader // without a cache
	clock  clock.PassiveClock
	retry  time.Duration // how long undefined is used

	mu        sync.Mutex
	undefined string // what was read last
	until     time.Time
}

// exportDefinitionName is the name of the definition.
var exportDefinitionName = "serviceexports." + mcsv1beta1.GroupVersion.Group

// liveTimeout bounds the requests for one export: a worker waits for them.
const liveTimeout = 10 * time.Second

// read asks the API server about the ServiceExport of local, and about its Service if
// a cache does not have it.
func (r *liveReader) read(ctx context.Context, local decide.LocalExport) decide.Live {
	if undefined := r.known(); undefined != "" && local.Export == nil {
		return decide.Live{Read: true, Undefined: undefined}
	}
	bounded, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	live := decide.Live{Read: true}
	export, err := r.get(bounded, schema.FromAPIVersionAndKind(mcsv1beta1.GroupVersion.String(), mcsv1beta1.ServiceExportKindName), local.Key)
	if err == nil && export != nil && export.DeletionTimestamp == nil {
		live.Export = export.UID
		if local.Export != nil && local.Service == nil {
			live.HasService, err = r.hasService(bounded, local.Key)
		}
	} else if err == nil {
		err = r.readAbsence(bounded, &live)
		r.remember(ctx, live.Undefined)
	}
	if err != nil {
		live.Problem = err.Error()
	}
	return live
}

// readAbsence reads, after a ServiceExport was not found, whether there could be one.
func (r *liveReader) readAbsence(ctx context.Context, live *decide.Live) error {
	definition, err := r.get(ctx, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		types.NamespacedName{Name: exportDefinitionName})
	switch {
	case err != nil:
		return err
	case definition == nil:
		live.Undefined = fmt.Sprintf("CustomResourceDefinition %s does not exist; apply that of the MCS API again", exportDefinitionName)
		return nil
	case definition.DeletionTimestamp != nil:
		live.Undefined = fmt.Sprintf("CustomResourceDefinition %s is being deleted; apply that of the MCS API again when it is gone", exportDefinitionName)
		return nil
	}
	live.Defined = definition.CreationTimestamp.Time
	// A list that asks for no version has the one of the store, whichever replica of the
	// API server answers. Namespaces are served as soon as the API server is.
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
	if err := r.reader.List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("list Namespaces for the version of the API server: %w", err)
	}
	live.Version = list.ResourceVersion
	return nil
}

func (r *liveReader) hasService(ctx context.Context, key types.NamespacedName) (bool, error) {
	service, err := r.get(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Service"}, key)
	return service != nil && service.DeletionTimestamp == nil, err
}

// get is the metadata of an object; nil if it does not exist.
func (r *liveReader) get(ctx context.Context, kind schema.GroupVersionKind, key types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err := r.reader.Get(ctx, key, object)
	if err == nil {
		return object, nil
	}
	if apierrors.IsNotFound(err) && !isUnserved(err) {
		return nil, nil
	}
	return nil, fmt.Errorf("%s %s cannot be read: %w", kind.Kind, key, err)
}

// isUnserved reports whether a 404 is about a kind that is not served. That about an
// object names it.
func isUnserved(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
}

func (r *liveReader) known() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clock.Now().Before(r.until) {
		return r.undefined
	}
	return ""
}

// remember keeps why ServiceExports are undefined, and logs each cause once.
func (r *liveReader) remember(ctx context.Context, undefined string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	log := ctrl.LoggerFrom(ctx).WithValues("definition", exportDefinitionName)
	switch {
	case undefined != "" && undefined != r.undefined:
		log.Info("no export is withdrawn because its ServiceExport does not exist", "reason", undefined)
	case undefined == "" && r.undefined != "":
		log.Info("ServiceExports are defined again")
	}
	r.undefined, r.until = undefined, r.clock.Now().Add(r.retry)
}

// own is this cluster's own export as a source of its import. The API server is asked
// before what the import lists ends.
func (i *importController) own(ctx context.Context, v *decide.ImportView) decide.OwnSource {
	local := v.Local
	entry, listed := decide.OwnEntry(v)
	switch {
	case i.isIDDoubtful(ctx) && !decide.IsListedAsOwn(v):
		return decide.OwnSource{State: model.SourceNotRead, Why: i.foreignID()}
	case local.Export == nil && !listed:
		return decide.OwnSource{State: model.SourceEnded}
	case local.Service == nil && !listed:
		return decide.OwnSource{State: model.SourceSuspended}
	}
	var live decide.Live
	if decide.NeedsOwnLive(local) {
		live = i.live.read(ctx, local)
	}
	var records []*exchangev1alpha1.ExportRecord
	if local.Export == nil || local.Verdict.Outcome == decision.Denied {
		var err error
		if records, err = i.records(ctx, local.Key); err != nil {
			return decide.OwnSource{State: model.SourceNotRead, Why: fmt.Sprintf("its ExportRecords cannot be read: %v", err)}
		}
	}
	return decide.Own(local, entry, live, records, v.Now)
}
