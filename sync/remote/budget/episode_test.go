// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"testing"
	"time"
)

func TestALimitIsReportedWhileItIsExceededForLong(t *testing.T) {
	var e Episode
	begun := time.Unix(1000, 0)
	for _, c := range []struct {
		from, to time.Duration // each second, in which the limit is exceeded
		now      time.Duration
		want     bool
	}{
		{0, 0, 0, false},
		{0, 9, 9, false},
		{20, 29, 29, false}, // after a break
		{30, 30, 30, true},
		{60, 60, 60, true}, // another break, of which nothing is reported
		{60, 60, 119, true},
		{60, 60, 120, false},
		{121, 125, 125, false},
	} {
		for at := c.from; at <= c.to && c.to > 0; at++ {
			e.Note(begun.Add(at * time.Second))
		}
		if got := e.Lasts(begun.Add(c.now * time.Second)); got != c.want {
			t.Errorf("after %d s: reported %v", c.now, got)
		}
	}
	var never Episode
	if never.Lasts(begun) {
		t.Error("a limit that was never exceeded is reported")
	}
}
