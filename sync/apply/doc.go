// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package apply executes the actions of package plan. It is the only package in
// sync that writes objects.
//
// It takes actions and a client, and returns the objects as the API server stored
// them, or an error whose class says when to retry. Every write has a precondition,
// so that it changes the object that was planned for, or none: it never overwrites,
// changes or deletes a foreign object. It decides nothing.
package apply
