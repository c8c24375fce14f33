// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"testing"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
)

// BenchmarkEvaluate is one request from the input as Go values to the verdict.
// Facts gives the one namespace that is asked about, so the number of namespaces
// of a cluster does not show here: only that of clusters does.
func BenchmarkEvaluate(b *testing.B) {
	for _, clusters := range []int{5, 50, 200} {
		b.Run(fmt.Sprintf("baseline/clusters=%d", clusters), func(b *testing.B) {
			measure(b, loaded(b, engine.Options{}, baselines(b)...), clusters)
		})
	}
	var many []engine.Policy
	for i := range 100 {
		many = append(many, denying(fmt.Sprintf("p%d", i), "no", fmt.Sprintf(`input.object.metadata.name == "x%d"`, i)))
	}
	b.Run("policies=100/clusters=5", func(b *testing.B) {
		measure(b, loaded(b, engine.Options{}, many...), 5)
	})
}

func measure(b *testing.B, e *engine.Engine, clusters int) {
	var peers []string
	for i := range clusters - 1 {
		peers = append(peers, fmt.Sprintf("cluster-%d", i))
	}
	in := request(peers...)
	b.ReportAllocs()
	for b.Loop() {
		if verdict := e.Evaluate(b.Context(), in); verdict.Outcome != decision.Allowed {
			b.Fatal(verdict)
		}
	}
}

// BenchmarkLoad is off the request path.
func BenchmarkLoad(b *testing.B) {
	list := baselines(b)
	for b.Loop() {
		loaded(b, engine.Options{}, list...)
	}
}
