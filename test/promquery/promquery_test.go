// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package promquery

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMetricsOfAQuery(t *testing.T) {
	for query, want := range map[string][]string{
		`absent(up == 1)`: {"up"},
		`max without (instance, pod) (expires_seconds{peer="b"}) - time() < 4 * 3600`:                             {"expires_seconds"},
		`histogram_quantile(0.99, sum by (side, le) (rate(change_seconds_bucket[5m])))`:                           {"change_seconds_bucket"},
		`a{x="of (b)"} / on (peer) group_left (version) b or a unless c offset 5m`:                                {"a", "b", "c"},
		`sum by (condition) (exports{condition!="Conflict",status!="True"} or exports{condition="Conflict"}) > 0`: {"exports"},
	} {
		if diff := cmp.Diff(want, Metrics(query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
}
