// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e proves Comity as users run it: the Deployment of config/default,
// from an image of the Dockerfile, in two kind clusters joined to one clusterset.
//
// What it asks, it asks as a user would: Pods that send requests by
// clusterset.local names through stock CoreDNS and kube-proxy, DNS, and the API.
// It needs Docker; it takes an image from COMITY_IMAGE if that exists, else builds
// one. The clusters are called comity-a and comity-b; they are deleted before and
// after. Every wait is bounded, and a failure shows objects, events and logs.
// Each spec names what it proves by kep or beyond; a table of it comes last.
package e2e
