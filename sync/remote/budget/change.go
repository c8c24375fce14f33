// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package budget

// How often a second, after how many at once, the changes of one export of a member are
// followed: read and planned (package members), and written (package controllers). Nothing
// is lost by waiting: what was changed last is read. Kubernetes changes the slices of a
// Service about once a second; a rollout of 50 pods fits into the burst.
const (
	ChangesPerSecond = 10
	ChangeBurst      = 50
)

// ChangeBytes is how many bytes of slices cost as much as one more change, because all of
// a slice is opened, compared and written. A slice of 100 endpoints has 15 kB, so that
// this concerns only larger ones.
const ChangeBytes = 16 << 10

// How many slices of one export are written at once, and how many a second, after how
// many without a pause. Between two batches, other imports and other members are
// served: a batch takes about a quarter of a second. The burst lets a Service of 100,000
// endpoints, which are 1,000 slices, be imported without a pause.
const (
	WriteBatch      = 50
	WritesPerSecond = 50
	WriteBurst      = 1000
)

// ChangeCost is what a change of so many bytes of slices costs of ChangeBurst: at least 1,
// and at most all of it, so that it can be made.
func ChangeCost(bytes int) int { return min(1+bytes/ChangeBytes, ChangeBurst) }
