// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package facts reads the input of policies for an export, and has them evaluate it.
//
// It takes an input that has what a request of a user says, or only the export that is to be
// audited; it reads the Service and Namespace through a client and the other members through
// Peers, and completes the input. Reviewer passes that to the policies and gives their Verdict. It
// never writes and never guesses: if something could not be read, the verdict is
// NotEvaluated. policies/INPUT.md describes the input. It is apart from package
// webhook because stored exports are reviewed without an admission request.
package facts
