// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package authoring

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
)

// Format is a Rego file as `opa fmt` writes it. The text must parse (engine.Parse),
// which bounds what is formatted.
func Format(file, text string) (string, error) {
	formatted, err := format.SourceWithOpts(file, []byte(text), format.Opts{RegoVersion: ast.RegoV1})
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return string(formatted), nil
}
