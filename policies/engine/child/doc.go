// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package child evaluates policies in processes that may die.
//
// A Client has what an engine.Engine has, and the same answers. It runs this program
// once more, with the argument Argument; Serve is what that process does: an engine.Engine
// answers the calls of net/rpc that come from the standard input. OPA bounds neither its
// memory nor its stack, and not every builtin stops at a deadline, so the process has a bound
// on its memory and ends when an evaluation does not stop.
//
// One process answers admission and audits, another one, one request at a time, whatever
// might end it: policies are loaded there first, previews are made there, and what was under
// way when a process died is evaluated there again. There each policy is evaluated by itself,
// so that the one that ends the process is known. It fails for that input, which is
// remembered by their digests; one that ends the process for inputs of two namespaces, or in
// a preview, is in quarantine.
//
// The processes need no cluster, no network and no file.
package child
