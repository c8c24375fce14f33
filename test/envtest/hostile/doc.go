// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile tests Comity against a peer that is an attacker.
//
// Cluster b publishes whatever it likes, past the validation of its own API
// server; a is the victim, and c an honest neighbor of both; a and c run the
// agent as a process. After every attack nothing of it stands in a, what was
// wrong is named where a user looks, a wrote nothing elsewhere and soon nothing
// at all, and what c and b honestly export works. DESIGN.md, section 2, and
// KEP-1645, "Constraints and Conflict Resolution", are what is tested.
package hostile
