// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// Traffic is how stock kube-proxy and CoreDNS may use the endpoints of one source cluster of
// an import. It is decided for the import in one place, from lost and drained clusters and
// from tiers, and it is all that is written of them: conditions and zone hints of endpoints.
type Traffic int

const (
	// Served endpoints have the conditions that their cluster publishes. In an import with
	// tiers they have a hint to a zone that does not exist here, so that they are used as soon
	// as no Preferred endpoint is ready.
	Served Traffic = iota
	// Preferred endpoints are also hinted to the zones of this cluster. kube-proxy uses only
	// these while one of them is ready.
	Preferred
	// LastResort endpoints are serving, terminating and not ready, so that kube-proxy uses
	// them only where no other endpoint is ready. Where nothing before them is ready they
	// stay ready: DNS and gateways use no others.
	LastResort
	// Unanswered endpoints are those of a lost cluster: like LastResort, and after it.
	Unanswered
	// Withheld endpoints are not ready, and not used by anyone.
	Withheld
	// Omitted endpoints are not written at all.
	Omitted
)

// IsReady reports whether an endpoint is ready. It follows the API: unset means ready.
func IsReady(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) }
