// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package hub proves the hub mode: the real program in three members that
// publish in a fourth API server, and what each member's credential allows there.
package hub
