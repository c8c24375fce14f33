// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"testing"
	"time"
)

func TestQuantileIsOneOfTheValues(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i) // 100 … 1
	}
	for _, tc := range []struct {
		name string
		all  []time.Duration
		part float64
		want time.Duration
	}{
		{"the median of 100 is the 50th", hundred, 0.5, 50},
		{"p99 of 100 is the 99th", hundred, 0.99, 99},
		{"all of it is the greatest", hundred, 1, 100},
		{"of one value every part is that value", []time.Duration{7}, 0.5, 7},
		{"the median of two is the smaller", []time.Duration{9, 4}, 0.5, 4},
		{"p99 of three is the greatest", []time.Duration{1, 2, 3}, 0.99, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := quantile(tc.all, tc.part); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
