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

// hold has so many evaluations run in the background until end is called.
func hold(t *testing.T, evaluations int) (end func()) {
	entered, ended := make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	for range evaluations {
		running.Go(func() {
			InBackground(t.Context(), func() decision.Verdict {
				entered <- struct{}{}
				<-ended
				return decision.Verdict{Outcome: decision.Allowed}
			})
		})
		<-entered
	}
	return func() { close(ended); running.Wait() }
}

func TestWhileRequestsComeEvaluationsInTheBackgroundLeaveACPU(t *testing.T) {
	requested.Store(time.Now().Add(time.Hour).UnixNano())
	defer requested.Store(0)
	allowed := func() decision.Verdict { return decision.Verdict{Outcome: decision.Allowed} }
	end := hold(t, cap(background))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if v := InBackground(ended, allowed); v.Outcome != decision.NotEvaluated || !strings.Contains(v.Problem, "did not end in time") {
		t.Errorf("one more than there are slots: %+v", v)
	}
	if v := InBackground(t.Context(), allowed); v.Outcome != decision.Allowed {
		t.Errorf("while the others do not end: %+v", v)
	}
	end()
	if v := InBackground(t.Context(), allowed); v.Outcome != decision.Allowed {
		t.Errorf("after the others ended: %+v", v)
	}
}

func TestWithoutRequestsAllEvaluationsInTheBackgroundRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		end := hold(t, 10*cap(background))
		if d := time.Since(begun); d > 0 {
			t.Errorf("the last one began after %v", d)
		}
		end()
	})
}

func TestWhileRequestsComeTheNextEvaluationInTheBackgroundStartsAfterAPause(t *testing.T) {
	for took, pause := range map[time.Duration]time.Duration{time.Millisecond: pauseFactor * time.Millisecond, time.Second: pauseMost} {
		synctest.Test(t, func(t *testing.T) {
			slots := background
			background = make(chan struct{}, 1)
			defer func() { background = slots }()
			requested.Store(time.Now().UnixNano())
			defer requested.Store(0)
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
			time.Sleep(2*pauseMost + requestsAfter) // the slot is free, and no request came lately
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
