// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
)

func TestEvaluationsInTheBackgroundLeaveACPU(t *testing.T) {
	allowed := func() decision.Verdict { return decision.Verdict{Outcome: decision.Allowed} }
	entered, end := make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	for range cap(background) {
		running.Go(func() {
			InBackground(t.Context(), func() decision.Verdict {
				entered <- struct{}{}
				<-end
				return allowed()
			})
		})
		<-entered
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if v := InBackground(ended, allowed); v.Outcome != decision.NotEvaluated || !strings.Contains(v.Problem, "did not end in time") {
		t.Errorf("one more than there are slots: %+v", v)
	}
	if v := InBackground(t.Context(), allowed); v.Outcome != decision.Allowed {
		t.Errorf("while the others do not end: %+v", v)
	}
	close(end)
	running.Wait()
	if v := InBackground(t.Context(), allowed); v.Outcome != decision.Allowed {
		t.Errorf("after the others ended: %+v", v)
	}
}

func TestWhileRequestsComeTheNextEvaluationInTheBackgroundStartsAfterAPause(t *testing.T) {
	for took, pause := range map[time.Duration]time.Duration{time.Millisecond: pauseFactor * time.Millisecond, time.Second: pauseMost} {
		synctest.Test(t, func(t *testing.T) {
			slots := background
			background = make(chan struct{}, 1)
			defer func() { background = slots }()
			begun := time.Now()
			evaluate := func() decision.Verdict {
				time.Sleep(took)
				requested.Store(time.Now().UnixNano())
				return decision.Verdict{Outcome: decision.Allowed}
			}
			InBackground(t.Context(), evaluate)
			if d := time.Since(begun); d != took {
				t.Errorf("the first one returned after %v; want %v, without the pause", d, took)
			}
			InBackground(t.Context(), evaluate)
			if d := time.Since(begun); d != 2*took+pause {
				t.Errorf("the second one returned after %v; want %v", d, 2*took+pause)
			}
			time.Sleep(2*pauseMost + pauseAfter) // the slot is free, and no request came lately
			begun = time.Now()
			for range 2 {
				InBackground(t.Context(), func() decision.Verdict {
					time.Sleep(took)
					return decision.Verdict{Outcome: decision.Allowed}
				})
			}
			if d := time.Since(begun); d != 2*took {
				t.Errorf("without requests, two take %v; want %v", d, 2*took)
			}
		})
	}
}
