// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// The process reads the import at some times of its own clock, and asks whether it is
// young at the last one. Clock is how far the clock of the API server is ahead.
func TestHowLongAnImportIsYoung(t *testing.T) {
	const none = types.UID("")
	type read struct {
		after time.Duration
		uid   types.UID
	}
	for name, c := range map[string]struct {
		reads []read
		made  time.Duration // by the clock of the process
		clock time.Duration
		young bool
	}{
		"made by this process a minute ago":                              {[]read{{0, none}, {time.Minute, "x"}}, time.Second, 0, true},
		"made two minutes ago":                                           {[]read{{0, none}, {time.Second, "x"}, {2 * time.Minute, "x"}}, time.Second, 0, false},
		"the clock of the process is an hour behind: a minute ago":       {[]read{{0, none}, {time.Minute, "x"}}, time.Second, time.Hour, true},
		"the clock of the process is an hour behind: an hour later":      {[]read{{0, none}, {time.Second, "x"}, {time.Hour, "x"}}, time.Second, time.Hour, false},
		"the clock of the process is an hour ahead: a minute ago":        {[]read{{0, none}, {time.Minute, "x"}}, time.Second, -time.Hour, true},
		"none for an hour, then one":                                     {[]read{{0, none}, {time.Hour, none}, {time.Hour + time.Minute, "x"}}, time.Hour, 0, true},
		"there when the process started, a minute old":                   {[]read{{0, "x"}}, -time.Minute, 0, true},
		"a minute old when the process started, and two minutes old now": {[]read{{0, "x"}, {time.Minute, "x"}}, -time.Minute, 0, false},
		"old when the process started":                                   {[]read{{0, "x"}}, -2 * time.Minute, 0, false},
		"there when the process started, made in an hour":                {[]read{{0, "x"}}, -24 * time.Hour, 25 * time.Hour, false},
		"made in an hour, and that hour has come":                        {[]read{{0, "x"}, {time.Hour, "x"}}, -24 * time.Hour, 25 * time.Hour, false},
		"settled once, and the clock is set back to its creation":        {[]read{{0, none}, {time.Second, "x"}, {time.Hour, "x"}, {time.Second, "x"}}, 0, 0, false},
		"young, and the clock is set back by an hour":                    {[]read{{0, none}, {time.Second, "x"}, {-time.Hour, "x"}}, 0, 0, false},
		"settled, and made again":                                        {[]read{{0, none}, {time.Second, "x"}, {time.Hour, "x"}, {2 * time.Hour, "y"}}, 0, -time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			var s Settling
			var now time.Time
			for _, r := range c.reads {
				var imported *mcsv1beta1.ServiceImport
				if r.uid != none {
					imported = importedFrom()
					imported.UID, imported.CreationTimestamp = r.uid, metav1.NewTime(at(0).Add(c.made+c.clock))
				}
				now = at(0).Add(r.after)
				s = s.After(imported, now)
			}
			if young := now.Before(s.At); young != c.young {
				t.Errorf("young: %t, it settles at %v, now is %v", young, s.At, now)
			}
		})
	}
}

func TestTheImportOfSomebodyElseIsNone(t *testing.T) {
	foreign := importedFrom()
	foreign.UID, foreign.ManagedFields = "x", nil
	if got := (Settling{}).After(foreign, at(60)); got != (Settling{Read: true, At: at(62)}) {
		t.Errorf("got %+v", got)
	}
}
