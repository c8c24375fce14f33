// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Capabilities are what a policy may call, as the JSON that `opa check
// --capabilities` and `opa eval --capabilities` read. It ends in a newline.
func Capabilities() ([]byte, error) {
	text, err := json.MarshalIndent(capabilities(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the capabilities as JSON: %w", err)
	}
	return append(text, '\n'), nil
}

// Parse reads one Rego file as the engine does, be it a policy or its tests. The
// error has lines of file:row:column and message.
func (e *Engine) Parse(file, text string) (*ast.Module, error) {
	if err := readable(file, text); err != nil {
		return nil, err
	}
	return e.parse(file, text)
}

// Library are the modules that a policy with the stage may use, by file name; Export
// when the stage is empty.
func (e *Engine) Library(stage v1alpha1.Stage) map[string]*ast.Module {
	return maps.Clone(e.library[cmp.Or(stage, v1alpha1.StageExport)])
}

// TestCompiler compiles a policy together with its tests: as the engine compiles the
// policy, except that print works and that tests may read what they like.
func (e *Engine) TestCompiler() *ast.Compiler {
	return ast.NewCompiler().
		WithCapabilities(e.sandbox.capabilities).
		WithStrict(true).
		WithEnablePrintStatements(true).
		WithDefaultRegoVersion(ast.RegoV1)
}

// TestData is what a policy finds in data, beside rules, as the engine would give it:
// its parameters. The policy must compile.
func (e *Engine) TestData(policy Policy) (map[string]any, error) {
	e.loading.Lock()
	defer e.loading.Unlock()
	v, err := e.version(policy)
	if err != nil {
		return nil, err
	}
	return map[string]any{"comity": map[string]any{"params": map[string]any{v.pkg: v.params}}}, nil
}

// InputJSON is the input of a subject as policies see it, as JSON values of Go.
func InputJSON(on Subject) (any, error) {
	value, err := on.value(newTermCache(), true)
	if err != nil {
		return nil, err
	}
	return ast.JSON(value)
}

// Described is an error of OPA's parser or compiler as lines of file:row:column and
// message; any other error as it is.
func Described(err error) error {
	if list := (ast.Errors)(nil); errors.As(err, &list) {
		return describe("", list)
	}
	return err
}
