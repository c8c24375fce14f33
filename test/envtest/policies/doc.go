// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies proves, on a real API server, that ExportPolicies reach the
// engine of every replica, that the leader alone says what came of them, and
// that one that does not compile harms no other.
package policies
