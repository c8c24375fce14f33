// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/sync/model"
)

const lostAfter = 15 * time.Second

var start = time.Date(2026, 1, 1, 0, 0, 0, 500, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func whole(seconds int) time.Time { return at(seconds).Truncate(time.Second) }

func TestLiveness(t *testing.T) {
	connected, seen := model.Liveness{State: model.Connected}, model.Liveness{State: model.Connected, Seen: true}
	for _, c := range []struct {
		name string
		do   func(*Tracker)
		want model.Liveness
	}{
		{"a Lease that was never renewed leaves its peer Connected for a while", func(k *Tracker) { k.Update(at(44), false, "Why", "how") }, connected},
		{"then it is Lost, and was never confirmed", func(k *Tracker) { k.Update(at(45), false, "Why", "how") },
			model.Liveness{State: model.Lost, Since: whole(45), Reason: "Why", Message: "how"}},
		{"it is Connected although its endpoints do not answer", func(k *Tracker) { k.Renewed(at(10)); k.Update(at(24), true, "Why", "how") }, seen},
		{"it is Lost sooner if its endpoints do not answer", func(k *Tracker) { k.Renewed(at(10)); k.Update(at(25), true, "Why", "how") },
			model.Liveness{State: model.Lost, Silent: true, Since: whole(25), Seen: true, Confirmed: whole(10), Reason: "Why", Message: "how"}},
		{"that they answer again is no heartbeat", func(k *Tracker) {
			k.Update(at(25), true, "Why", "how")
			k.Update(at(30), false, "Other", "words")
		}, model.Liveness{State: model.Lost, Since: whole(25), Reason: "Why", Message: "how"}},
		{"that they do not answer later is said", func(k *Tracker) {
			k.Update(at(45), false, "Why", "how")
			k.Update(at(60), true, "Other", "words")
		}, model.Liveness{State: model.Lost, Silent: true, Since: whole(45), Reason: "Why", Message: "how"}},
		{"being read for the first time gives it the same time again", func(k *Tracker) { k.Reached(at(30)); k.Update(at(74), false, "Why", "how") }, connected},
		{"being read again does not", func(k *Tracker) { k.Renewed(at(10)); k.Reached(at(45)); k.Update(at(55), false, "Why", "how") },
			model.Liveness{State: model.Lost, Since: whole(55), Seen: true, Confirmed: whole(10), Reason: "Why", Message: "how"}},
		{"being read does not make it Connected again", func(k *Tracker) { k.Update(at(45), false, "Why", "how"); k.Reached(at(46)) },
			model.Liveness{State: model.Lost, Since: whole(45), Reason: "Why", Message: "how"}},
		{"an update in the same state changes nothing", func(k *Tracker) {
			k.Update(at(45), false, "Why", "how")
			k.Update(at(100), false, "Other", "words")
		}, model.Liveness{State: model.Lost, Since: whole(45), Reason: "Why", Message: "how"}},
		{"a renewal makes it Connected at once", func(k *Tracker) { k.Update(at(310), true, "Why", "how"); k.Renewed(at(311)) }, seen},
		{"a time in which this process did not run is left out", func(k *Tracker) {
			k.Renewed(at(10))
			k.Skip(300 * time.Second)
			k.Update(at(324), true, "Why", "how")
		}, seen},
		{"a clock that is set back makes no peer Connected", func(k *Tracker) {
			k.Update(at(45), false, "Why", "how")
			k.Update(at(0), false, "Why", "how")
		}, model.Liveness{State: model.Lost, Since: whole(45), Reason: "Why", Message: "how"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := New(lostAfter, start)
			c.do(k)
			if diff := cmp.Diff(c.want, k.Liveness); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTransitionsAreReportedOnce(t *testing.T) {
	k := New(lostAfter, start)
	var got []string
	note := func(what string, changed bool) {
		if changed {
			got = append(got, what)
		}
	}
	for s := range 700 {
		if s < 40 || s > 500 {
			note("renewed", s%10 == 0 && k.Renewed(at(s)))
		}
		before := k.Liveness.State
		changed := k.Update(at(s), s > 90, "Why", "how")
		note(string(before+" to "+k.Liveness.State), changed)
	}
	if diff := cmp.Diff([]string{"renewed", "Connected to Lost", "Lost to Lost", "renewed"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
