// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package limited compiles policies in a process of its own, with limits on time,
// memory and stack.
//
// Compiler.Try is an engine.Trial: it takes policies and gives an error for each that
// does not compile, or that exceeds a limit. It runs this program once more, with
// the argument Argument; Main is what that process does: it reads policies, compiles one
// after the other with package engine, and writes a result for each. When a policy ends
// the process, that one has failed, and another process continues with the next.
//
// The process needs no cluster, no network and no file, and has no environment. It is a
// process because Go can end no goroutine, and because a full stack, or no memory, ends
// all of a process.
package limited
