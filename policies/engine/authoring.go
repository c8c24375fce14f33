// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

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

// TestCompiler compiles a policy together with its tests: as the engine compiles the
// policy, except that print works and that tests may read what they like.
func (e *Engine) TestCompiler(stage v1alpha1.Stage) *ast.Compiler {
	return e.compiler(cmp.Or(stage, v1alpha1.StageExport), e.capabilities).WithEnablePrintStatements(true)
}

// Surroundings are what a policy finds when it is tested: other modules, by file, and in data,
// beside rules, its parameters. The policy must compile.
func (e *Engine) Surroundings(policy Policy) (modules map[string]*ast.Module, data map[string]any, err error) {
	e.loading.Lock()
	defer e.loading.Unlock()
	v, err := e.version(policy)
	if err != nil {
		return nil, nil, err
	}
	modules = maps.Clone(e.library[v.Stage])
	data = map[string]any{"comity": map[string]any{"params": map[string]any{v.pkg: v.params}}}
	v.addTypes(modules)
	return modules, data, nil
}

// InputJSON is the input of a subject, as a Writer gives it, as JSON values of Go.
func InputJSON(on *Subject, err error) (any, error) {
	if err == nil {
		err = on.read(nil)
	}
	if err != nil {
		return nil, err
	}
	value, err := on.value(true)
	if err != nil {
		return nil, err
	}
	return ast.JSON(value)
}

// Described is an error of OPA's parser or compiler, or of an evaluation, as lines of
// file:row:column and message; any other error as it is.
func Described(err error) error {
	if list := (ast.Errors)(nil); errors.As(err, &list) {
		return describe("", list)
	}
	if failed := (*topdown.Error)(nil); errors.As(err, &failed) && failed.Location != nil {
		return errors.New(Renamed(fmt.Sprintf("%s: %s", place(failed.Location), strings.TrimSpace(failed.Message))))
	}
	return err
}
