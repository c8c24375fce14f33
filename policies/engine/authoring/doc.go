// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package authoring has what authors of policies need and the agent does not: it formats
// Rego and runs its tests.
//
// It takes Rego sources and gives findings and results of tests, with the coverage of
// each policy. It compiles with the builtins, the library and the parameters that
// package engine gives to a policy. It is apart from engine so that the agent does
// not carry OPA's test runner. It reads no files.
package authoring
