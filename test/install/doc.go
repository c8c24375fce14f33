// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package install puts Comity into a control plane without nodes from the manifests
// of config/default, as a process beside it.
//
// It takes a cluster's admin access; it gives a running agent with exactly the
// rights of config/rbac. It makes the webhook's certificate itself, as cert-manager
// needs nodes. Where there are nodes, tests install the chart instead, as users do.
// Nothing that ships imports it.
package install
