// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package apply makes the writes that package plan found outstanding, and is
// the only one in sync that writes objects.
//
// It takes actions and a client; it gives the objects as the API server stored
// them, or an error whose class says when to try again. Every write carries a
// precondition, so that it hits the object that was planned for or none: it
// never creates over, changes or deletes a foreign one. It decides nothing.
package apply
