// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/sync/model"
)

var (
	times = Times{Stale: 40 * time.Second, Lost: 5 * time.Minute}
	start = time.Date(2026, 1, 1, 0, 0, 0, 500, time.UTC)
)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func whole(seconds int) time.Time { return at(seconds).Truncate(time.Second) }

func TestContact(t *testing.T) {
	connected := model.Liveness{State: model.Connected}
	for _, c := range []struct {
		name string
		do   func(*Tracker)
		want model.Liveness
	}{
		{"a peer never heard of is Connected for as long as any may be silent", func(k *Tracker) { k.Judge(at(39), "Why", "how") }, connected},
		{"then it is Stale, and was never confirmed", func(k *Tracker) { k.Judge(at(40), "Why", "how") },
			model.Liveness{State: model.Stale, Since: whole(40), Reason: "Why", Message: "how"}},
		{"being read for the first time gives it the same time again", func(k *Tracker) { k.Reached(at(30)); k.Judge(at(69), "Why", "how") }, connected},
		{"being read again does not", func(k *Tracker) { k.Heard(at(10)); k.Reached(at(45)); k.Judge(at(50), "Why", "how") },
			model.Liveness{State: model.Stale, Since: whole(50), Confirmed: whole(10), Reason: "Why", Message: "how"}},
		{"being read does not make it Connected again", func(k *Tracker) { k.Judge(at(40), "Why", "how"); k.Reached(at(41)) },
			model.Liveness{State: model.Stale, Since: whole(40), Reason: "Why", Message: "how"}},
		{"judged again in the same state it does not change", func(k *Tracker) {
			k.Judge(at(40), "Why", "how")
			k.Judge(at(100), "Other", "words")
		}, model.Liveness{State: model.Stale, Since: whole(40), Reason: "Why", Message: "how"}},
		{"a long silence makes it Lost, since then and confirmed as before", func(k *Tracker) {
			k.Heard(at(10))
			k.Judge(at(50), "Why", "how")
			k.Judge(at(310), "Other", "words")
		}, model.Liveness{State: model.Lost, Since: whole(310), Confirmed: whole(10), Reason: "Other", Message: "words"}},
		{"being heard of ends it at once", func(k *Tracker) { k.Judge(at(310), "Why", "how"); k.Heard(at(311)) }, connected},
		{"a time in which we did not run is no silence", func(k *Tracker) {
			k.Heard(at(10))
			k.Excuse(300 * time.Second)
			k.Judge(at(345), "Why", "how")
		}, connected},
		{"a clock set back ends no silence", func(k *Tracker) { k.Judge(at(40), "Why", "how"); k.Judge(at(0), "Why", "how") },
			model.Liveness{State: model.Stale, Since: whole(40), Reason: "Why", Message: "how"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := New(times, start)
			c.do(k)
			if diff := cmp.Diff(c.want, k.Liveness()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTransitionsAreReportedOnce(t *testing.T) {
	k := New(times, start)
	var got []string
	note := func(what string, changed bool) {
		if changed {
			got = append(got, what)
		}
	}
	for s := range 700 {
		if s < 60 || s > 500 {
			note("heard", s%10 == 0 && k.Heard(at(s)))
		}
		before := k.Liveness().State
		due := k.Due(at(s))
		changed := k.Judge(at(s), "Why", "how")
		if due != changed {
			t.Fatalf("second %d: due is %v and the state changed is %v", s, due, changed)
		}
		note(before.String()+" to "+k.Liveness().State.String(), changed)
	}
	if diff := cmp.Diff([]string{"Connected to Stale", "Stale to Lost", "heard"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
