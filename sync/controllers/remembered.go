// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// publishedRecords remembers which records this process published. If somebody deletes a
// record, or its exchange namespace, and the ServiceExport is deleted before the record
// is back, nothing else shows that there is a withdrawal to state, and the members would
// hold the import until an administrator confirms.
//
// After a restore of the own store it remembers nothing for the rest of the process:
// caches may still have what the store lost.
type publishedRecords struct {
	mu    sync.Mutex
	of    map[types.NamespacedName]map[string]*exchangev1alpha1.ExportRecord // by exchange namespace
	ended map[types.NamespacedName]bool                                      // the keys of these without a ServiceExport
	off   bool
}

// maxEnded bounds what is remembered of exports that ended. An export beyond it needs the
// confirmation of an administrator.
const maxEnded = 10_000

func newPublishedRecords() *publishedRecords {
	return &publishedRecords{of: map[types.NamespacedName]map[string]*exchangev1alpha1.ExportRecord{}, ended: map[types.NamespacedName]bool{}}
}

// end forgets everything, for ever.
func (r *publishedRecords) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = true
	clear(r.of)
	clear(r.ended)
}

// lost returns the records that were published and do not exist any more, sorted by
// namespace. It forgets those in namespaces that nobody reads: their member was removed.
func (r *publishedRecords) lost(local decide.LocalExport, current []*exchangev1alpha1.ExportRecord, read []string) []*exchangev1alpha1.ExportRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.of[local.Key]
	maps.DeleteFunc(all, func(namespace string, _ *exchangev1alpha1.ExportRecord) bool {
		return !slices.Contains(read, namespace)
	})
	r.settle(local.Key, local.Export == nil)
	var out []*exchangev1alpha1.ExportRecord
	for namespace, record := range r.of[local.Key] {
		if !slices.ContainsFunc(current, func(c *exchangev1alpha1.ExportRecord) bool { return c.Namespace == namespace }) {
			out = append(out, record)
		}
	}
	slices.SortFunc(out, func(a, b *exchangev1alpha1.ExportRecord) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return out
}

// settle keeps the bounds of what is remembered of key.
func (r *publishedRecords) settle(key types.NamespacedName, ended bool) {
	full := !r.ended[key] && len(r.ended) >= maxEnded
	switch {
	case len(r.of[key]) == 0 || ended && full:
		delete(r.of, key)
		delete(r.ended, key)
	case ended:
		r.ended[key] = true
	default:
		delete(r.ended, key)
	}
}

// wrote records that a plan was carried out: what it published is remembered, and what it
// withdrew, or moved to other namespaces, is not any more.
func (r *publishedRecords) wrote(in plan.PublishInput) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.off {
		return
	}
	next := map[string]*exchangev1alpha1.ExportRecord{}
	for namespace, record := range r.of[in.Key] {
		if !writes(in, namespace) {
			next[namespace] = record
		}
	}
	if in.Record != nil {
		for _, namespace := range in.Audience {
			next[namespace] = remembered(namespace, in)
		}
	}
	r.of[in.Key] = next
	r.settle(in.Key, r.ended[in.Key])
}

// writes reports whether a plan leaves nothing to be stated in an exchange namespace.
func writes(in plan.PublishInput, namespace string) bool {
	there := func(record *exchangev1alpha1.ExportRecord) bool { return record.Namespace == namespace }
	return in.Moved && len(in.Audience) > 0 || slices.ContainsFunc(in.CurrentRecords, there) || slices.ContainsFunc(in.Lost, there)
}

// remembered is what a withdrawal needs of a record.
func remembered(namespace string, in plan.PublishInput) *exchangev1alpha1.ExportRecord {
	record := &exchangev1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: model.RecordName(in.Key.Namespace, in.Key.Name)},
		Spec:       exchange.WithdrawnRecord(*in.Record, false),
	}
	if mark, has := in.Annotations[model.AnnotationStoreRestored]; has {
		record.Annotations = map[string]string{model.AnnotationStoreRestored: mark}
	}
	return record
}

// endedKeys are the exports without a ServiceExport of which a withdrawal may be to state.
func (r *publishedRecords) endedKeys() []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.ended))
}

// remember records what was written of an export. Before the version of the own store is
// known, a restore would not be found, so nothing is remembered.
func (p *publishController) remember(ctx context.Context, in plan.PublishInput) {
	if p.store.state().version == "" {
		if err := p.checkStore(ctx, storeState{}); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("the version of the own API server is not known", "reason", err.Error())
			return
		}
	}
	p.remembered.wrote(in)
}

// readLost reads which records of an export were lost.
func (p *publishController) readLost(ctx context.Context, v *decide.ExportView) {
	read := []string{model.ExchangeNamespace(p.Self)}
	for _, m := range v.Members {
		read = append(read, model.ScopedExchangeNamespace(p.Self, m.ID))
	}
	v.Lost, v.LostElsewhere = nil, false
	for _, record := range p.remembered.lost(v.Local, v.Records, read) {
		if p.Exchange.Problem(ctx, record.Namespace) != "" {
			v.LostElsewhere = true
			continue
		}
		v.Lost = append(v.Lost, record)
	}
}
