// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy is `kubectl comity policy`, the tools for authors of policies.
//
// Every command compiles and evaluates with package policies/engine, as the agent
// does, so that what a command accepts, denies or prints is what the agent of the
// same version does. A command is in the file of its name. None writes to a cluster.
package policy
