// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

// pacing is a pacer in a time of its own.
type pacing struct {
	*pacer
	at        time.Time
	due       []func()
	published map[types.NamespacedName]int
}

func newPacing() *pacing {
	p := &pacing{at: time.Unix(1000, 0), published: map[types.NamespacedName]int{}}
	p.pacer = newPacer(func(key types.NamespacedName) { p.published[key]++ })
	p.now = func() time.Time { return p.at }
	p.after = func(d time.Duration, f func()) {
		end := p.at.Add(d)
		p.due = append(p.due, func() {
			if !p.at.Before(end) {
				f()
				return
			}
			p.after(end.Sub(p.at), f)
		})
	}
	return p
}

func (p *pacing) pass(d time.Duration) {
	p.at = p.at.Add(d)
	due := p.due
	p.due = nil
	for _, f := range due {
		f()
	}
}

// FAULT 31: an export that changes without pause is published at a bounded rate, and
// its last change is.
func TestFault31ChangesOfOneExportCoalesce(t *testing.T) {
	p := newPacing()
	p.changed("b", keyOf(1), 0)
	if p.published[keyOf(1)] != 1 {
		t.Fatal("the first change waits")
	}
	for range 10_000 { // for ten seconds
		p.changed("b", keyOf(1), 0)
		p.pass(time.Millisecond)
	}
	if n := p.published[keyOf(1)]; n < budget.ChangeBurst+9*budget.ChangesPerSecond || n > budget.ChangeBurst+11*budget.ChangesPerSecond {
		t.Errorf("published %d times in 10 s", n)
	}
	p.changed("c", keyOf(1), 0)
	p.changed("b", keyOf(2), 0)
	before := p.published[keyOf(1)]
	if p.published[keyOf(2)] != 1 {
		t.Error("another export of the same peer waits")
	}
	p.changed("b", keyOf(1), 0)
	p.pass(time.Second)
	if p.published[keyOf(1)] <= before {
		t.Error("the last change is not published")
	}
}

// FAULT 31: a peer that changes all its exports does not fill the queue of the others.
func TestFault31ChangesOfAllExportsOfOnePeerAreBounded(t *testing.T) {
	p := newPacing()
	for n := range 50_000 {
		p.changed("b", keyOf(n), 0)
	}
	if n := len(p.published); n != peerBurst {
		t.Errorf("%d published at once", n)
	}
	p.changed("c", keyOf(-1), 0)
	if p.published[keyOf(-1)] != 1 {
		t.Error("another peer waits")
	}
	p.pass(10 * time.Second)
	if n := len(p.published); n < peerBurst+9*peerRate || n > peerBurst+11*peerRate {
		t.Errorf("%d published in 10 s", n)
	}
	p.pass(600 * time.Second)
	if n := len(p.published); n != 50_001 {
		t.Errorf("%d published in the end", n)
	}
	p.pass(time.Hour)
	for n := range 40_000 {
		p.changed("b", keyOf(100_000+n), 0)
	}
	if len(p.keys) > 40_000 {
		t.Errorf("%d keys are remembered", len(p.keys))
	}
}

// FAULT 31: a slice of the largest size that is imported, which changes all the time, is
// read about as often as 25 small ones.
func TestFault31ChangesOfALargeSliceCountMore(t *testing.T) {
	const cost = 25
	p := newPacing()
	for range 10_000 { // for ten seconds
		p.changed("b", keyOf(1), cost*budget.ChangeBytes-1)
		p.pass(time.Millisecond)
	}
	if n, want := p.published[keyOf(1)], (budget.ChangeBurst+10*budget.ChangesPerSecond)/cost; n < want-1 || n > want+1 {
		t.Errorf("published %d times in 10 s; want %d", n, want)
	}
	p.changed("b", keyOf(2), 0)
	if p.published[keyOf(2)] != 1 {
		t.Error("another export of that cluster waits")
	}
	// However large it is, it is read.
	p.changed("b", keyOf(3), 1<<30)
	if p.published[keyOf(3)] != 1 {
		t.Error("the largest one waits")
	}
}
