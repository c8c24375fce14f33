// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook serves the admission webhooks of Comity.
//
// It takes admission reviews (admission.k8s.io/v1) of ServiceExports in every
// version, of Services that turn ExternalName and of ExportPolicies; it gives
// answers that packages facts and admit come to. It holds no rule of its own on
// what may be exported, never writes, and never stands in the way of a deletion.
package webhook
