// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

// soon bounds every wait but those for informers that read again.
const soon = 45 * time.Second

// short is for how long nothing must change: no rule has a timer that removes what was
// imported, so it has to be longer only than what is wrong takes to be noticed, which each
// spec awaits before.
const short = time.Second

func TestFaults(t *testing.T) {
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite.Run(t, "faults", suite.Waits{Soon: soon, Poll: 100 * time.Millisecond})
}

var (
	set  *clusterset.Set
	a, b *clusterset.Member
)

var _ = BeforeSuite(func(ctx SpecContext) {
	// Shortened from 10 s, 40 s and 5 min.
	set = clusterset.New(ctx, "--heartbeat-interval=1s", "--lost-after=4s")
	set.Add(ctx, controlplane.Options{IDs: []string{"a", "b"}, APIServerOnly: true})
	set.Join(ctx, "a", "b")
	a, b = set.Members["a"], set.Members["b"]
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) {
	if report.Failed() {
		set.Report()
	}
})

// both are the members of the set, but for those that a spec adds.
func both() []*clusterset.Member { return []*clusterset.Member{a, b} }

// healthy waits until both agents, which an earlier spec may have troubled, are
// well again.
func healthy(ctx context.Context) {
	GinkgoHelper()
	a.AwaitReady(ctx)
	b.AwaitReady(ctx)
}
