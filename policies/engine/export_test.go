// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"
	"slices"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// fieldsOf are the fields of input at a stage, sorted.
func fieldsOf(stage v1alpha1.Stage) []string {
	return slices.Sorted(maps.Keys(inputSchema(stage)["properties"].(map[string]any)))
}

// Check gives the error that Load would give for a policy that is added to the policies in use.
func (e *Engine) Check(policy Policy) error {
	_, err := e.Change(policy)
	return err
}

// UseLibrary has policies import this Rego, by file name, until the test ends. The error says where
// it does not compile.
func UseLibrary(t interface{ Cleanup(func()) }, files map[string]string) error {
	r, err := readLibrary(files)
	if err == nil {
		before := library
		t.Cleanup(func() { library = before })
		library = func() *regoLibrary { return r }
	}
	return err
}

// With is an engine that answers as e would once the policy is stored.
func (e *Engine) With(policy Policy) (*Engine, error) { return e.with(policy) }
