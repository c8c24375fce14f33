// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/policies/source"
)

// bench is where the policies sit: the baseline in the real engine, unless a
// test overrules it.
type bench struct {
	engine   *child.Client
	baseline []engine.Policy
	mu       sync.Mutex
	overrule *decision.Verdict
}

func newBench() *bench {
	GinkgoHelper()
	e := child.New(engine.Options{})
	DeferCleanup(e.Close)
	baselines, err := source.Read("../../../charts/comity/files/policies")
	Expect(err).NotTo(HaveOccurred())
	var list []engine.Policy
	for _, baseline := range baselines {
		list = append(list, engine.FromObject(baseline.Object, time.Now()))
	}
	for _, result := range e.Load(list) {
		Expect(result.Err).NotTo(HaveOccurred())
	}
	return &bench{engine: e, baseline: list}
}

// Load adds policies to the baseline until the end of the test.
func (b *bench) Load(more ...engine.Policy) {
	GinkgoHelper()
	for _, result := range b.engine.Load(slices.Concat(b.baseline, more)) {
		Expect(result.Err).NotTo(HaveOccurred())
	}
	DeferCleanup(func() { b.engine.Load(b.baseline) })
}

// Overrule gives every request this verdict until the end of the test.
func (b *bench) Overrule(verdict decision.Verdict) {
	b.set(&verdict)
	DeferCleanup(func() { b.set(nil) })
}

func (b *bench) set(verdict *decision.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.overrule = verdict
}

func (b *bench) Evaluate(ctx context.Context, in decision.Input) decision.Verdict {
	b.mu.Lock()
	overrule := b.overrule
	b.mu.Unlock()
	if overrule != nil {
		return *overrule
	}
	return b.engine.Evaluate(ctx, in)
}

// recorder notes the warnings of the API server.
type recorder struct {
	mu    sync.Mutex
	texts []string
}

func (r *recorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, text)
}

// Take is what was noted since the last call.
func (r *recorder) Take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := r.texts
	r.texts = nil
	return texts
}
