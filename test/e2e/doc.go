// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e proves Comity as users run it: docs/install.md is followed word for
// word on two empty kind clusters, from cert-manager to `kubectl comity verify`, and
// its last section after all specs, when nothing but CustomResourceDefinitions may be
// left.
//
// What it asks, it asks as a user would: kubectl, helm, the plugin, DNS, and Pods that
// send requests by clusterset.local names in each IP family through stock CoreDNS and
// kube-proxy. It needs Docker; it takes an image from COMITY_IMAGE if that exists, else
// builds one, and cert-manager's chart from CERT_MANAGER_CHART, else the published one.
// The clusters are called comity-e2e-a and comity-e2e-b; they are deleted before and after.
// Several processes of Ginkgo share them; `go test` runs it in one.
// Every wait is bounded, and a failure shows objects, events and logs. Each spec names
// what it proves by kep or beyond; a table of it comes last.
package e2e
