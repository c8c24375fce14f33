// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/restoredetect"
)

// ownStore knows whether the store of this cluster's own API server was restored from a
// backup. What such a store no longer has was not deleted by anybody. Where this cluster
// publishes in its own API server, the records go with the ServiceExports, and only what
// the process remembers of them could be stated. A hub keeps the records.
//
// The agent usually restarts with a restore, so what is known is kept in the hub, too:
// in the Lease, which is written every few seconds anyway.
type ownStore struct {
	reader     client.Reader // without a cache
	clock      clock.PassiveClock
	remembered *publishedRecords // which a restore ends

	checking sync.Mutex // held during a check: answers must not overtake each other
	mu       sync.Mutex
	known    storeState
	found    time.Time            // when this process last found a restore
	detected *restoredetect.Found // by a cache, and not checked yet
	at       time.Time            // when a cache last detected one
}

// storeState is what is known of a store.
type storeState struct {
	version  string // the resourceVersion at which it was found last; empty if never
	restored string // when its last restore was found, an RFC 3339 time; empty if none was
}

// storeTimeout bounds a check: the heartbeat waits for it.
const storeTimeout = 2 * time.Second

// stateIn is what the Lease of this cluster in a hub says.
func stateIn(lease *coordinationv1.Lease) storeState {
	return storeState{version: lease.Annotations[model.AnnotationStoreVersion], restored: lease.Annotations[model.AnnotationStoreRestored]}
}

// annotate is the reverse of stateIn.
func (s storeState) annotate(lease *coordinationv1.Lease) {
	for key, value := range map[string]string{model.AnnotationStoreVersion: s.version, model.AnnotationStoreRestored: s.restored} {
		if value != "" {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, key, value)
		}
	}
}

// later is the one of two states that was found later. After a restore the version is
// lower, so the time of the restore comes first.
func later(a, b storeState) storeState {
	switch order := cmp.Compare(a.restored, b.restored); {
	case order < 0:
		return b
	case order == 0 && (a.version == "" || restoredetect.Compare(b.version, a.version) != nil):
		return b
	}
	return a
}

func (s *ownStore) state() storeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// suspect records that a cache detected a restore. What other caches have of that time
// cannot be relied on until the next check.
func (s *ownStore) suspect(found *restoredetect.Found) {
	s.remembered.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.detected, s.at = found, s.clock.Now()
}

// isRecent reports whether a restore was detected so recently that some caches may still
// have what was there before.
func (s *ownStore) isRecent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	return now.Sub(s.at) < restoredetect.Pause || now.Sub(s.found) < restoredetect.Pause
}

func (s *ownStore) suspected() *restoredetect.Found {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.detected
}

// check compares the version of the store with what is known, and with what the Lease
// in a hub says. It returns a restore that was not known before.
func (s *ownStore) check(ctx context.Context, stored storeState) (*restoredetect.Found, error) {
	s.checking.Lock()
	defer s.checking.Unlock()
	before := later(s.state(), stored)
	s.mu.Lock()
	s.known = before
	s.mu.Unlock()
	detected := s.suspected()
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	is, err := s.version(bounded)
	if err != nil {
		return nil, err
	}
	found, now := restoredetect.Compare(before.version, is), s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if found == nil && now.Sub(s.found) > restoredetect.Pause { // the store may have come to this version again since
		found = detected
	}
	s.known.version = is
	if found != nil {
		s.known.restored, s.found = now.UTC().Format(time.RFC3339), now
		s.remembered.end()
	}
	if s.detected == detected {
		s.detected = nil
	}
	return found, nil
}

// version reads the resourceVersion of the store. A list that asks for no version has
// the one of the store, whichever replica of the API server answers. Namespaces are
// served as soon as the API server is.
func (s *ownStore) version(ctx context.Context) (string, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
	if err := s.reader.List(ctx, list, client.Limit(1)); err != nil {
		return "", fmt.Errorf("list Namespaces for the version of the API server: %w", err)
	}
	return list.ResourceVersion, nil
}

// checkStore checks the own store, and acts on a restore.
func (b *base) checkStore(ctx context.Context, stored storeState) error {
	found, err := b.store.check(ctx, stored)
	if found != nil && b.hub {
		b.storeRestored(ctx, found)
	}
	return err
}

// reasonStoreRestored is that of the event on Comity's Namespace.
const reasonStoreRestored = "StoreRestored"

// storeRestored reports a restore, has it written into the Lease, and has the record of
// each ServiceExport that still exists say so.
func (b *base) storeRestored(ctx context.Context, found *restoredetect.Found) {
	note := fmt.Sprintf("%v; no export is withdrawn because its ServiceExport, or its Service, does not exist since then: the restore may have removed it; "+
		"create it again, and to withdraw the export delete the ServiceExport then", found)
	log := ctrl.LoggerFrom(ctx)
	log.Info("exports that are missing stay published", "reason", reasonStoreRestored, "message", note)
	if err := b.warnOfComity(ctx, reasonStoreRestored, note); err != nil {
		log.Error(err, "no event is written", "reason", reasonStoreRestored)
	}
	b.beatNow()
	b.restartPass()
}

// warnOfComity writes an event on Comity's Namespace.
func (b *base) warnOfComity(ctx context.Context, reason, note string) error {
	own, err := get[corev1.Namespace](ctx, b.client, types.NamespacedName{Name: b.Namespace})
	if err == nil && own != nil {
		b.Recorder.Eventf(own, nil, corev1.EventTypeWarning, reason, "Publish", "%s", model.Bound(note, model.MaxEventNote))
	}
	return err
}

// restore is what is known of a restore of the own store, for one export.
func (b *base) restore(ctx context.Context, v decide.ExportView) decide.Restore {
	var out decide.Restore
	if decide.NeedsRestore(v) && (b.hub || len(v.Lost) > 0) || b.hub && b.store.suspected() != nil {
		if err := b.checkStore(ctx, storeState{}); err != nil {
			out.Problem = fmt.Sprintf("it is not known whether the store of this cluster's API server was restored from a backup: %v", err)
		}
	}
	if b.hub {
		out.Mark = b.store.state().restored
	} else { // there, the records are in the same store
		out.Recent = b.store.isRecent()
	}
	v.Restore = out
	if decide.NeedsExists(v) {
		out.Exists = b.definition.exists(ctx, v.Local.Export)
	}
	return out
}
