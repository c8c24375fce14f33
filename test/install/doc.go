// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package install puts Comity into a test cluster from the manifests that users
// apply: as a process beside a control plane, or as the Deployment on kind.
//
// It takes a cluster's admin access; it gives a running agent with exactly the
// rights of config/rbac. It makes the webhook's certificate itself, which in a
// real cluster is cert-manager's work. Nothing that ships imports it.
package install
