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
// might end it: policies are loaded there first, and previews are made there. A request that
// was under way when a process died is evaluated again by its successor, for usually another
// request was the cause; if that one dies, too, or the request is known to be the cause, it is
// evaluated by the other process. There each policy is evaluated by itself, so that the one
// that ends the process is known. It fails for that input, which is remembered by their
// digests; one that ends the process for inputs of two namespaces, or in a preview, is in
// quarantine.
//
// The processes need no cluster, no network and no file.
package child
