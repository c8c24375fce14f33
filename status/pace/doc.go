// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package pace says when an object's status may be written again.
//
// It takes the object's UID, what kind of change there is and the time, and gives
// how long to wait; who waits computes the status anew, so that the last state
// always lands. It writes nothing and starts no timer. It keeps clusters that
// change their minds every second from becoming as many writes here.
package pace
