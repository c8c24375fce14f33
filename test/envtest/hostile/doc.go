// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostile tests Comity against a peer that is an attacker.
//
// Cluster b publishes whatever it likes, past the validation of its own API
// server; a is the victim, and c an honest neighbor of a; a and c run the
// agent as a process. After every attack: nothing of it is imported into a, a
// condition or event names the problem, a wrote to no other cluster and soon writes
// nothing at all, and the valid exports of b and c work. It tests what docs/security.md
// says of a hostile member, and KEP-1645, "Constraints and Conflict Resolution".
package hostile
