// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// Sabotage breaks a process on purpose. What has no test that notices it when it
// breaks is not tested.
type Sabotage struct {
	// Input and Output change what package plan is given, and what it gave.
	Input  func(*plan.ImportInput)
	Output func(*plan.ImportPlan)
}

// plan asks package plan.
func (p *Process) plan(in plan.ImportInput) plan.ImportPlan {
	in.LocalCluster, in.Lost = home, p.Lost
	if p.Sabotage.Input != nil {
		p.Sabotage.Input(&in)
	}
	out := plan.Import(in)
	if p.Sabotage.Output != nil {
		p.Sabotage.Output(&out)
	}
	return out
}

// home is what every cluster is like.
var home = model.LocalCluster{Families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}}

// everywhere is accepted from every peer: which ranges are is for package
// exchange's own tests.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// clean is what may be imported of a slice that a peer published; nil if
// nothing may.
func clean(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	good, _ := exchange.CleanSlice(s, exchange.Filter{Accepted: everywhere})
	return good
}
