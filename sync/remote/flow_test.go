// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

func TestResponsesAreReadAtTheSpeedOfTheLimitAfterTheBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlow(1<<20, 4<<20, "")
		begun := time.Now()
		for i := range 24 { // 6 MiB
			if err := f.wait(t.Context(), readSize); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); i == 15 && took > 0 {
				t.Errorf("the burst is read within %v", took)
			}
		}
		if took := time.Since(begun).Round(time.Millisecond); took != 2*time.Second {
			t.Errorf("2 MiB after the burst are read within %v", took)
		}
		if got := f.exceeded(); got != "1048576 bytes per second" {
			t.Errorf("reported: %q", got)
		}
		time.Sleep(slowReported + time.Second)
		if got := f.exceeded(); got != "" {
			t.Errorf("reported a minute later: %q", got)
		}
	})
}

func TestAResponseThatCannotBeReadInTimeExceedsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlow(readSize, readSize, "")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = f.wait(short, readSize)
		_ = f.wait(short, readSize/2)
		err := f.wait(short, readSize)
		var limit *budget.Exceeded
		if !errors.As(err, &limit) || limit.Limit != "262144 bytes per second" {
			t.Errorf("error: %v", err)
		}
		begun := time.Now()
		if err := f.wait(t.Context(), readSize/2); err != nil || time.Since(begun) != time.Second/2 {
			t.Errorf("what was refused is charged: %v, %v", time.Since(begun), err)
		}
	})
}

// FAULT 31: a peer that sends more than is read of it is reported as such, not as one
// that cannot be reached.
func TestFault31AListThatTakesTooLongExceedsTheLimitOfBytesPerSecond(t *testing.T) {
	_, c := limited(t, budget.Limits{BytesPerSecond: 1 << 10, BurstBytes: 1}, func(w http.ResponseWriter, path string, watch bool) bool {
		if watch || path != exportsOfB {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, strings.Repeat(" ", 1<<20), `{"metadata":{"resourceVersion":"10"},"items":[]}`)
		return true
	})
	exceeds(t, c, "ExportRecords", "the limit of 1024 bytes per second is exceeded")
}

// FAULT 31: the Lease of a peer is read whatever else the peer sends.
func TestFault31ALeaseDoesNotWaitForOtherResponses(t *testing.T) {
	flooded := make(chan struct{})
	_, c := limited(t, budget.Limits{BytesPerSecond: 1 << 10, BurstBytes: 1}, func(w http.ResponseWriter, path string, watch bool) bool {
		switch {
		case path == "comity-b/leases" && !watch:
			<-flooded
		case path == exportsOfB && watch:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.Repeat(" ", 4<<20)) // the next event
			return true
		}
		return false
	})
	await(t, "what is read has to wait", func() bool { return c.transport.flow.tokens.Tokens() < -100_000 })
	close(flooded)
	await(t, "the Lease is read", c.feeds.leases.listed.Load)
}
