// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package budget bounds how much of one member is held in memory, and says how often its
// changes are followed.
//
// It takes the limits, and each list and each event of a watch before anything of it
// is used; it gives the limit that they would exceed. What was counted before stays
// counted, since the caller keeps it. It reads nothing itself and knows no time.
package budget
