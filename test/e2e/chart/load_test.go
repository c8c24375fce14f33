// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// load creates ServiceExports at a constant rate. All pass both webhooks; they are
// not stored, so that it is admission that is under load, and neither etcd nor what
// follows an export.
type load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	began  time.Time
	ended  time.Duration

	mu      sync.Mutex
	sent    int
	slowest time.Duration
	late    int // not answered because a busy machine left no time for it
	failed  []string
}

// startLoad sends perSecond creates, each by itself, however long the others
// take: an API server that waits for a webhook does not lower the rate.
func startLoad(ctx context.Context) *load {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel, began: time.Now()}
	l.done.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(perSecond))
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				l.done.Go(func() { l.create(ctx, fmt.Sprintf("under-load-%d", i)) })
			}
		}
	})
	return l
}

// evaluatedLate matches the answer of a replica that had no time to evaluate, or to begin.
var evaluatedLate = regexp.MustCompile("because the policies could not be evaluated: .*(not evaluated|none ended) in time")

func (l *load) create(ctx context.Context, name string) {
	began := time.Now()
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	err := api.Create(ctx, export, client.DryRunAll)
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return // cut off by us
	}
	l.sent++
	l.slowest = max(l.slowest, took)
	switch {
	case err == nil:
	case evaluatedLate.MatchString(err.Error()),
		strings.Contains(err.Error(), context.DeadlineExceeded.Error()):
		l.late++
	default:
		l.failed = append(l.failed, fmt.Sprintf("after %.1fs, in %s: %v", began.Sub(l.began).Seconds(), took.Round(time.Millisecond), err))
	}
}

// soFar is how many were sent, how many had no time left, and what failed otherwise.
func (l *load) soFar() (sent, late int, failed []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent, l.late, l.failed
}

// stop ends it and says what it was.
func (l *load) stop() string {
	l.cancel()
	if l.ended == 0 {
		l.ended = time.Since(l.began)
	}
	l.done.Wait()
	return fmt.Sprintf("%d creates in %.0fs, %.1f a second, the slowest %s, late: %d, failed: %d",
		l.sent, l.ended.Seconds(), float64(l.sent)/l.ended.Seconds(), l.slowest.Round(time.Millisecond), l.late, len(l.failed))
}
