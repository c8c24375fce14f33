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

// SlicesPerChange is how many slices cost as much as one change, because each is a
// write. Those of a rollout of 500 pods are fewer.
const SlicesPerChange = 5

// ChangeCost is what a change of so many slices costs of ChangeBurst, which have so many
// bytes: at least 1, and at most all of it, so that it can be made.
func ChangeCost(slices, bytes int) int {
	return min(max(1, slices/SlicesPerChange)+bytes/ChangeBytes, ChangeBurst)
}
