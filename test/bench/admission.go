// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/test/bench/admission"
	"github.com/comity-mcs/comity/test/bench/result"
	"github.com/comity-mcs/comity/webhook/facts"
)

const (
	// auditedExports is how many stored exports are evaluated while requests come.
	auditedExports = 10_000
	// auditWorkers is how many are at once, as in the agent (controllers.Options.Workers).
	auditWorkers = 4
	// admissionRate is how many requests come in a second meanwhile.
	admissionRate = 200
)

// admissionSizes are clusters and namespaces in each.
var admissionSizes = [][2]int{{5, 100}, {50, 200}}

// admission measures requests to the webhook, in this process and in the one that evaluates: with Comity's engine
// and with others, one after the other, and with Comity's while exports are audited.
func (b *bench) admission(ctx context.Context) error {
	defer admission.Forget()
	out := &result.Admission{Requests: b.requests, Load: result.Load1()}
	for _, size := range admissionSizes {
		w := admission.NewWorld(size[0], size[1])
		engines, err := admissionEngines()
		if err != nil {
			return err
		}
		for _, e := range engines {
			measured := result.AdmissionEngine{Name: e.name, Clusters: size[0], Namespaces: size[1]}
			if err := b.measureAdmission(ctx, w, e.evaluator, &measured); err != nil {
				return err
			}
			b.say("%s with %d clusters: p50 %v, p99 %v, %.0f allocations", e.name, size[0], measured.Took.P50, measured.Took.P99, measured.Allocations)
			out.Engines = append(out.Engines, measured)
			if comity, is := e.evaluator.(*child.Client); is {
				comity.Close()
			}
		}
	}
	largest := admissionSizes[len(admissionSizes)-1]
	out.Audit = result.AdmissionAudit{Clusters: largest[0], Namespaces: largest[1], Exports: auditedExports, Rate: admissionRate, For: b.auditFor}
	if err := b.measureAudited(ctx, &out.Audit); err != nil {
		return err
	}
	b.say("while %d exports are audited: p50 %v, p99 %v; %d evaluations", auditedExports, out.Audit.Took.P50, out.Audit.Took.P99, out.Audit.Evaluations)
	b.results.Admission = out
	return nil
}

type admissionEngine struct {
	name      string
	evaluator facts.Evaluator
}

// admissionEngines are all that are compared, with the rules that Comity ships.
func admissionEngines() ([]admissionEngine, error) {
	baseline, err := admission.Baseline()
	if err != nil {
		return nil, err
	}
	comity, err := admission.Engine(engine.Options{}, baseline...)
	if err != nil {
		return nil, err
	}
	precompiled, err := admission.CEL()
	if err != nil {
		return nil, err
	}
	gatekeeper, err := admission.Gatekeeper()
	if err != nil {
		return nil, err
	}
	return []admissionEngine{{"Comity", comity}, {"CEL, compiled before", precompiled}, {"Gatekeeper's way", gatekeeper}}, nil
}

// reviews are the requests for all namespaces of the world.
func reviews(w *admission.World, count int) ([][]byte, error) {
	var out [][]byte
	for n := range count {
		review, err := w.Review(n)
		if err != nil {
			return nil, err
		}
		out = append(out, review)
	}
	return out, nil
}

// measureAdmission makes requests one after the other. Those of one round come before,
// so that caches hold what they can.
func (b *bench) measureAdmission(ctx context.Context, w *admission.World, evaluator facts.Evaluator, out *result.AdmissionEngine) error {
	handler, err := admission.Handler(w.Reviewer(evaluator))
	if err != nil {
		return err
	}
	client, err := admission.NewClient(ctx, handler)
	if err != nil {
		return err
	}
	bodies, err := reviews(w, out.Namespaces)
	if err != nil {
		return err
	}
	for _, body := range bodies {
		if err := client.Allowed(body); err != nil {
			return err
		}
	}
	took := make([]time.Duration, b.requests)
	runtime.GC()
	mallocs, bytes := admission.Allocated()
	for n := range took {
		begun := time.Now()
		client.Send(bodies[n%len(bodies)])
		took[n] = time.Since(begun)
	}
	out.Took = result.Distribution(took)
	after, bytesAfter := admission.Allocated()
	out.Allocations = float64(after-mallocs) / float64(b.requests)
	out.Bytes = float64(bytesAfter-bytes) / float64(b.requests)
	return ctx.Err()
}

// measureAudited makes requests at a rate, whether or not those before were answered,
// while workers evaluate all stored exports again and again. A request takes from when
// it was due.
func (b *bench) measureAudited(ctx context.Context, out *result.AdmissionAudit) error {
	w := admission.NewWorld(out.Clusters, out.Namespaces)
	baseline, err := admission.Baseline()
	if err != nil {
		return err
	}
	comity, err := admission.Engine(engine.Options{}, baseline...)
	if err != nil {
		return err
	}
	defer comity.Close()
	reviewer := w.Reviewer(comity)
	handler, err := admission.Handler(reviewer)
	if err != nil {
		return err
	}
	bodies, err := reviews(w, out.Namespaces)
	if err != nil {
		return err
	}

	exports := w.Store(out.Exports)

	auditing, stop := context.WithCancel(ctx)
	defer stop()
	var audits errgroup.Group
	var next, evaluated atomic.Int64
	for range auditWorkers {
		audits.Go(func() error {
			for auditing.Err() == nil {
				verdict := reviewer.Admit(auditing, exports[next.Add(1)%int64(len(exports))])
				if verdict.Outcome == decision.Allowed {
					evaluated.Add(1)
				}
			}
			return nil
		})
	}
	took, err := atRate(ctx, out, func(n int) error {
		client, err := admission.NewClient(ctx, handler)
		if err != nil {
			return err
		}
		return client.Allowed(bodies[n%len(bodies)])
	})
	stop()
	_ = audits.Wait() // its functions give no error
	if err != nil {
		return err
	}
	out.Took, out.Evaluations = result.Distribution(took), int(evaluated.Load())
	return nil
}

// atRate sends requests when they are due.
func atRate(ctx context.Context, out *result.AdmissionAudit, send func(int) error) ([]time.Duration, error) {
	var sent errgroup.Group
	var mu sync.Mutex
	var took []time.Duration
	interval := time.Second / time.Duration(out.Rate)
	begun := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		due := begun.Add(time.Duration(n) * interval)
		if due.Sub(begun) >= out.For {
			break
		}
		time.Sleep(time.Until(due))
		sent.Go(func() error {
			err := send(n)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(due))
			return err
		})
	}
	if err := sent.Wait(); err != nil {
		return nil, err
	}
	return took, ctx.Err()
}
