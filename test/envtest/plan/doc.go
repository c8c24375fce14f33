// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan holds what sync/plan and sync/apply promise together, proven on
// a real API server with both IP families.
//
// There is no agent here: a test gives the input of one import, plans, applies
// and reads again, until nothing is outstanding. So it is the API server, and
// no model of one, that says what a Service may become, what server-side apply
// leaves behind and whose fields go with whom. It follows KEP-1645 and the API
// of Kubernetes 1.36.
package plan
