// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

// Check gives the error that Load would give for a policy that is added to the policies in use.
func (e *Engine) Check(policy Policy) error {
	_, err := e.With(policy)
	return err
}
