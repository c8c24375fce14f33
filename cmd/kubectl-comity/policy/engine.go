// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"github.com/comity-mcs/comity/policies/engine"
)

// newEngine is the agent's engine. The agent has engine.DefaultTimeout.
func newEngine(timeout time.Duration) (*engine.Engine, error) {
	return engine.New(engine.Options{Timeout: timeout})
}
