// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// indexEnded finds the statements of exports that ended.
const indexEnded = "comity.ended"

// endedIndex is the value of indexEnded.
func endedIndex(o client.Object) []string {
	if record, is := o.(*exchangev1alpha1.ExportRecord); is && decide.IsEnded(record) {
		return []string{"true"}
	}
	return nil
}

// statements knows where the statements of ended exports begin that are kept. They are
// counted once a minute: each of thousands is examined every ten minutes.
type statements struct {
	mu    sync.Mutex
	first string // in the order of decide.StatementOrder
	at    time.Time
}

// firstStatement is the oldest one of those that may be kept; empty if all may.
func (b *base) firstStatement(ctx context.Context) (string, error) {
	s, now := &b.statements, b.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.at); age >= 0 && age < time.Minute {
		return s.first, nil
	}
	var ended exchangev1alpha1.ExportRecordList
	if err := b.Exchange.Client.List(ctx, &ended, client.MatchingFields{indexEnded: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	s.first, s.at = "", now
	if surplus := len(ended.Items) - decide.MaxEnded; surplus > 0 {
		order := make([]string, len(ended.Items))
		for i := range ended.Items {
			order[i] = decide.StatementOrder(&ended.Items[i])
		}
		slices.Sort(order)
		s.first = order[surplus]
	}
	return s.first, nil
}
