// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan holds what sync/plan and sync/apply promise together, proven on
// a real API server with both IP families.
//
// There is no agent here: a test gives the input of one import, plans, applies
// and reads again, until nothing is outstanding. So a real API
// server, and no model of one, decides which changes of a Service are allowed and
// which fields server-side apply keeps. It follows KEP-1645 and the API
// of Kubernetes 1.36.
package plan
