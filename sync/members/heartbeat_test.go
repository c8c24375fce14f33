// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

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
		do   func(*heartbeat)
		want model.Liveness
	}{
		{"a Lease that was never renewed leaves its peer Connected for a while", func(k *heartbeat) { k.update(at(44), false, "Why", "how") }, connected},
		{"then it is Lost, and was never confirmed", func(k *heartbeat) { k.update(at(45), false, "Why", "how") },
			model.Liveness{State: model.Lost, Since: whole(45), Reason: "Why", Message: "how"}},
		{"it is Connected although its endpoints do not answer", func(k *heartbeat) { k.seen(at(10)); k.update(at(24), true, "Why", "how") }, seen},
		{"it is Lost sooner if its endpoints do not answer", func(k *heartbeat) { k.seen(at(10)); k.update(at(25), true, "Why", "how") },
			model.Liveness{State: model.Lost, Silent: true, Since: whole(25), Seen: true, Confirmed: whole(10), Reason: "Why", Message: "how"}},
		{"that they answer again is no heartbeat", func(k *heartbeat) {
			k.update(at(25), true, "Why", "how")
			k.update(at(30), false, "Other", "words")
		}, model.Liveness{State: model.Lost, Since: whole(25), Reason: "Why", Message: "how"}},
		{"that they do not answer later is said", func(k *heartbeat) {
			k.update(at(45), false, "Why", "how")
			k.update(at(60), true, "Other", "words")
		}, model.Liveness{State: model.Lost, Silent: true, Since: whole(45), Reason: "Why", Message: "how"}},
		{"being read for the first time gives it the same time again", func(k *heartbeat) { k.reached(at(30)); k.update(at(74), false, "Why", "how") }, connected},
		{"being read again does not", func(k *heartbeat) { k.seen(at(10)); k.reached(at(45)); k.update(at(55), false, "Why", "how") },
			model.Liveness{State: model.Lost, Since: whole(55), Seen: true, Confirmed: whole(10), Reason: "Why", Message: "how"}},
		{"being read does not make it Connected again", func(k *heartbeat) { k.update(at(45), false, "Why", "how"); k.reached(at(46)) },
			model.Liveness{State: model.Lost, Since: whole(45), Reason: "Why", Message: "how"}},
		{"an update in the same state changes nothing", func(k *heartbeat) {
			k.update(at(45), false, "Why", "how")
			k.update(at(100), false, "Other", "words")
		}, model.Liveness{State: model.Lost, Since: whole(45), Reason: "Why", Message: "how"}},
		{"a renewal makes it Connected at once", func(k *heartbeat) { k.update(at(310), true, "Why", "how"); k.seen(at(311)) }, seen},
		{"a time in which this process did not run is left out", func(k *heartbeat) {
			k.seen(at(10))
			k.skip(300 * time.Second)
			k.update(at(324), true, "Why", "how")
		}, seen},
		{"a clock that is set back makes no peer Connected", func(k *heartbeat) {
			k.update(at(45), false, "Why", "how")
			k.update(at(0), false, "Why", "how")
		}, model.Liveness{State: model.Lost, Since: whole(45), Reason: "Why", Message: "how"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHeartbeat(lostAfter, start)
			k := &h
			c.do(k)
			if diff := cmp.Diff(c.want, k.liveness); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTransitionsAreReportedOnce(t *testing.T) {
	h := newHeartbeat(lostAfter, start)
	k := &h
	var got []string
	note := func(what string, changed bool) {
		if changed {
			got = append(got, what)
		}
	}
	for s := range 700 {
		if s < 40 || s > 500 {
			note("renewed", s%10 == 0 && k.seen(at(s)))
		}
		before := k.liveness.State
		changed := k.update(at(s), s > 90, "Why", "how")
		note(string(before+" to "+k.liveness.State), changed)
	}
	if diff := cmp.Diff([]string{"renewed", "Connected to Lost", "Lost to Lost", "renewed"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
