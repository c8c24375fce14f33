// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/comity-mcs/comity/policies/engine"
)

// capabilitiesFile is what a policy may call, for `opa check --capabilities` and editors.
const capabilitiesFile = "policies/capabilities.json"

func writeCapabilities(path string) error {
	text, err := engine.Capabilities()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write the capabilities of policies: %w", err)
	}
	return nil
}
