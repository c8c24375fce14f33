// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"github.com/comity-mcs/comity/policies/engine"
)

// timeout of one evaluation. That of the agent is shorter; a machine that is busy, as
// those of a pipeline are, must not change the result.
const timeout = 10 * time.Second

// newEngine is the agent's engine.
func newEngine() (*engine.Engine, error) { return engine.New(engine.Options{Timeout: timeout}) }
