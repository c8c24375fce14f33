// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// A cluster with thousands of slices in one import does not keep the others waiting
// while they are written.
func TestOneReconcileWritesAPartOfManySlices(t *testing.T) {
	l, web := newSourceTest(), key("web")
	last := plan.Action{Verb: plan.Delete, Object: &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service"}}, AfterAll: true}
	deleted := sliceOf("b", 0)
	deleted.Verb = plan.Delete
	left, rounds := 500, 0
	for begun := l.at; left > 0 && l.at.Sub(begun) < time.Minute; rounds++ {
		var actions []plan.Action
		for range left {
			actions = append(actions, sliceOf("b", 0))
		}
		actions = append(actions, sliceOf("c", 0), deleted, last)
		written := map[model.ClusterID]int{}
		for _, a := range l.allowed(web, actions) {
			written[a.Source]++
			if a.AfterAll && left > maxSourceWrites {
				t.Fatal("what is done after all is done before the last slices")
			}
		}
		_, again := l.limited(web)
		switch {
		case written["c"] != 1:
			t.Fatalf("the slice of another cluster is not written: %v", written)
		case written["b"] > maxSourceWrites+1:
			t.Fatalf("one reconcile writes %d slices", written["b"])
		case written["b"] > 0: // of which one is a deletion
			left -= written["b"] - 1
		}
		if left > 0 && (again <= 0 || again > 2*time.Second) {
			t.Fatalf("the next reconcile is in %v, with %d slices left", again, left)
		}
		l.at = l.at.Add(max(again, 100*time.Millisecond))
	}
	if left > 0 || rounds < 10 {
		t.Errorf("%d slices are left after %d reconciles", left, rounds)
	}
}
