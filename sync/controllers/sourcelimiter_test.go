// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

// sliceOf is an update of a slice of one cluster.
func sliceOf(source model.ClusterID, padding int) plan.Action {
	return plan.Action{Verb: plan.Update, Source: source, Object: &discoveryv1.EndpointSlice{
		TypeMeta:   metav1.TypeMeta{Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: "derived-1-" + string(source), Annotations: map[string]string{"a": strings.Repeat("x", padding)}},
	}}
}

type sourceTest struct {
	*sourceLimiter
	at time.Time
}

func newSourceTest() *sourceTest {
	l := &sourceTest{at: time.Unix(1000, 0)}
	l.sourceLimiter = newSourceLimiter("a", func() time.Time { return l.at }, nil)
	return l
}

// FAULT 31: a cluster that changes its endpoints without pause delays its own only.
func TestFault31OneClustersChangesDelayOnlyItsOwn(t *testing.T) {
	l, web := newSourceTest(), key("web")
	service := plan.Action{Verb: plan.Update, Object: &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service"}}}
	last := plan.Action{Verb: plan.Delete, Object: service.Object, AfterAll: true}
	written := map[model.ClusterID]int{}
	for range 1000 { // for ten seconds
		l.at = l.at.Add(10 * time.Millisecond)
		actions := l.allowed(web, []plan.Action{service, sliceOf("a", 0), sliceOf("b", 0), last})
		written[""]++
		for _, a := range actions[1:] {
			written[a.Source]++
		}
		if waits := len(actions) == 2; waits != (actions[len(actions)-1].Source == "a") {
			t.Fatal("what is done after all is done although something waits")
		}
	}
	if n := written["b"]; n < budget.ChangeBurst+95 || n > budget.ChangeBurst+101 || written["a"] != 1000 {
		t.Errorf("written: %v", written)
	}
	if actions := l.allowed(web, []plan.Action{sliceOf("c", 0)}); len(actions) != 1 {
		t.Error("another cluster waits")
	}
	if actions := l.allowed(key("db"), []plan.Action{sliceOf("b", 0)}); len(actions) != 1 {
		t.Error("another import waits")
	}
	problems, again := l.limited(web)
	if len(problems) != 1 || problems[0].Cluster != "b" || problems[0].Reason != model.ReasonLimitExceeded || again <= 0 || again > time.Second/budget.ChangesPerSecond {
		t.Errorf("again in %v, problems %+v", again, problems)
	}
	t.Log("what waited is written, and a minute later nothing is said any more")
	l.at = l.at.Add(again)
	if len(l.allowed(web, []plan.Action{sliceOf("b", 0)})) != 1 {
		t.Error("it still waits")
	}
	if problems, again = l.limited(web); len(problems) != 1 || again <= 50*time.Second {
		t.Errorf("after that: again in %v, problems %+v", again, problems)
	}
	l.at = l.at.Add(again)
	if problems, again = l.limited(web); len(problems) != 0 || again != 0 {
		t.Errorf("a minute later: again in %v, problems %+v", again, problems)
	}
}

// FAULT 31: a large slice is written less often than a small one.
func TestFault31LargeSlicesAreWrittenLessOften(t *testing.T) {
	l, written := newSourceTest(), 0
	for range 1000 {
		l.at = l.at.Add(10 * time.Millisecond)
		written += len(l.allowed(key("web"), []plan.Action{sliceOf("b", 384<<10)}))
	}
	if written < 4 || written > 6 { // two at once, then one in 2.5 s
		t.Errorf("written %d times in 10 s", written)
	}
}

func TestDelayedChangesAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	at := time.Unix(1000, 0)
	l := newSourceLimiter("a", func() time.Time { return at }, registry)
	for range budget.ChangeBurst + 3 {
		l.allowed(key("web"), []plan.Action{sliceOf("b", 0), sliceOf("a", 0)})
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "comity_sync_changes_delayed_total" {
		t.Fatalf("metrics: %v, %v", families, err)
	}
	m := families[0].GetMetric()
	if len(m) != 1 || m[0].GetLabel()[0].GetValue() != "b" || m[0].GetCounter().GetValue() != 3 {
		t.Errorf("delayed: %v; want 3 of b", m)
	}
}

// many are updates of so many slices of b, and then deletions of others.
func many(updates, deletions int) []plan.Action {
	var out []plan.Action
	for i := range updates + deletions {
		a := sliceOf("b", 0)
		if i >= updates {
			a.Verb = plan.Delete
		}
		a.Object.SetName(fmt.Sprintf("derived-1-b-%05d", i))
		out = append(out, a)
	}
	return out
}

// written is what is left of outstanding once actions were made, except what is refused.
func written(outstanding, actions []plan.Action, refused func(plan.Action) bool) []plan.Action {
	return slices.DeleteFunc(slices.Clone(outstanding), func(a plan.Action) bool {
		return !refused(a) && slices.ContainsFunc(actions, func(made plan.Action) bool { return positionOf(made) == positionOf(a) })
	})
}

func nothing(plan.Action) bool { return false }

// FAULT 31: a cluster that publishes thousands of slices has them written in batches, and
// not faster than the limit; what other clusters change goes with each batch.
func TestFault31ManySlicesAreWrittenInBatches(t *testing.T) {
	l, web, outstanding := newSourceTest(), key("web"), many(2000, 500)
	last := plan.Action{Verb: plan.Delete, Object: &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service"}}, AfterAll: true}
	begun := l.at
	for batches := 0; ; batches++ {
		if batches > 2000 {
			t.Fatalf("%d actions are never made", len(outstanding))
		}
		actions := l.allowed(web, append(slices.Concat(outstanding, []plan.Action{sliceOf("c", 0)}), last))
		made := slices.DeleteFunc(slices.Clone(actions), func(a plan.Action) bool { return a.Source != "b" })
		if len(made) > budget.WriteBatch {
			t.Fatalf("%d slices are written at once", len(made))
		}
		if !slices.ContainsFunc(actions, func(a plan.Action) bool { return a.Source == "c" }) && batches < 20 {
			t.Fatal("another cluster waits")
		}
		rest := written(outstanding, made, nothing)
		if after := slices.ContainsFunc(actions, func(a plan.Action) bool { return a.AfterAll }); after != (len(rest) == 0) && batches < 20 {
			t.Fatalf("%d are outstanding: what is done after all is done: %v", len(rest), after)
		}
		outstanding = rest
		if len(outstanding) == 0 {
			break
		}
		_, again := l.limited(web)
		if again == 0 {
			t.Fatalf("%d are outstanding, and the import is not reconciled again", len(outstanding))
		}
		l.at = l.at.Add(again)
	}
	// 1,000 at once, and 50 a second: 20 s. Each reconcile takes 1 ms here.
	if took := l.at.Sub(begun); took < 15*time.Second || took > 25*time.Second {
		t.Errorf("2,000 slices are written and 500 deleted within %v", took)
	}
}

func TestHundredsOfSlicesAreWrittenWithoutAPause(t *testing.T) {
	l, web, outstanding := newSourceTest(), key("web"), []plan.Action(nil)
	for i := range 800 {
		a := sliceOf("b", 15<<10) // 100 endpoints
		a.Object.SetName(fmt.Sprintf("derived-1-b-%05d", i))
		outstanding = append(outstanding, a)
	}
	for range 800 / budget.WriteBatch {
		outstanding = written(outstanding, l.allowed(web, outstanding), nothing)
		problems, _ := l.limited(web)
		if l.at = l.at.Add(time.Millisecond); len(problems) > 0 {
			t.Fatalf("%d are outstanding: %+v", len(outstanding), problems)
		}
	}
	if len(outstanding) > 0 {
		t.Fatalf("%d are outstanding", len(outstanding))
	}
	if _, again := l.limited(web); again != 0 {
		t.Errorf("it is reconciled again after %v, although nothing is outstanding", again)
	}
}

// A quota may refuse more than a batch, until the deletions that come last are made.
func TestRefusedSlicesDoNotKeepOthersFromBeingWritten(t *testing.T) {
	l, outstanding := newSourceTest(), many(3*budget.WriteBatch, 10)
	refused := func(a plan.Action) bool { return a.Verb != plan.Delete }
	for range 4 {
		outstanding = written(outstanding, l.allowed(key("web"), outstanding), refused)
		l.at = l.at.Add(time.Minute)
	}
	if len(outstanding) != 3*budget.WriteBatch {
		t.Errorf("%d are outstanding", len(outstanding))
	}
}

func TestSourceRatesAreForgotten(t *testing.T) {
	l := newSourceTest()
	for i := range 10 * sweepSize {
		l.at = l.at.Add(time.Second)
		l.allowed(key(fmt.Sprint("web-", i)), []plan.Action{sliceOf("b", 0)})
	}
	if l.size > 2*sweepSize || len(l.sources) != l.size {
		t.Errorf("%d remembered", l.size)
	}
}
