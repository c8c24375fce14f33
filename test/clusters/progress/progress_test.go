// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"errors"
	"regexp"
	"testing"
	"time"
)

func TestAStepIsAnnouncedAndEndsWithWhatItReturned(t *testing.T) {
	failure := errors.New("broken")
	for _, test := range []struct {
		name   string
		result error
		want   string
	}{
		{"work that succeeds says how long it took", nil, `^\[   0s\] dig \.\.\.\n\[   0s\] dig: done in 0\.0s\n$`},
		{"work that fails leaves the rest to the caller", failure, `^\[   0s\] dig \.\.\.\n$`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			clock := Clock{Out: &out, Start: time.Now()}
			if got := clock.Step("dig", func() error { return test.result }); !errors.Is(got, test.result) {
				t.Errorf("got error %v, want %v", got, test.result)
			}
			if !regexp.MustCompile(test.want).MatchString(out.String()) {
				t.Errorf("got output %q, want %s", out.String(), test.want)
			}
		})
	}
}

func TestShortWorkIsSilentWhereThereIsNoTerminal(t *testing.T) {
	var out bytes.Buffer
	clock := Clock{Out: &out, Start: time.Now()}
	if err := clock.During("dig", func() error { return nil }); err != nil || out.Len() > 0 {
		t.Errorf("got error %v and output %q, want neither", err, out.String())
	}
}
