// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

// soon bounds every wait.
const soon = 45 * time.Second

func TestSpec(t *testing.T) {
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite.Run(t, "spec", suite.Waits{Soon: soon, Poll: 100 * time.Millisecond})
}

var (
	set  *clusterset.Set
	a, b *clusterset.Member
)

var _ = BeforeSuite(func(ctx SpecContext) {
	set = clusterset.New(ctx)
	set.Add(ctx, controlplane.Options{IDs: []string{"a"}, Nodes: 1})
	set.Add(ctx, controlplane.Options{IDs: []string{"b"}, Nodes: 1, Family: clusters.DualStack})
	set.Join(ctx, "a", "b")
	a, b = set.Members["a"], set.Members["b"]
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) {
	if report.Failed() {
		set.Report()
	}
})

func all() []*clusterset.Member { return []*clusterset.Member{a, b} }

// namespace makes one in every cluster.
func namespace(ctx context.Context, name string) string {
	GinkgoHelper()
	for _, m := range all() {
		m.Create(ctx, clusterset.Namespace(name))
	}
	return name
}
