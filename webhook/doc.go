// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook serves the admission webhooks of Comity.
//
// It takes admission reviews (admission.k8s.io/v1) of ServiceExports in every
// version, of Services that become ExternalName and of ExportPolicies; it gives the
// answers of packages facts and admit. It has no rule of its own on what may be
// exported, never writes, and never blocks a deletion.
package webhook
