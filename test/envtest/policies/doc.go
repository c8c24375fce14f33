// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies proves, on a real API server, that ExportPolicies reach the
// engine of every replica, that only the leader writes their status, and
// that one that does not compile does not affect the others.
package policies
