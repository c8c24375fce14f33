// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Surroundings are what a policy finds when it is tested: other modules, by file, and in data,
// beside rules, its parameters. The compiler compiles as the engine does, except that print works and
// that tests may read what they like. The policy must compile.
func Surroundings(policy Policy) (compiler *ast.Compiler, modules map[string]*ast.Module, data map[string]any, err error) {
	v := newVersion(policy)
	if v.err != nil {
		return nil, nil, nil, v.err
	}
	modules = maps.Clone(library().modules[v.Stage])
	data = map[string]any{"comity": map[string]any{"params": map[string]any{v.pkg: v.params}}}
	v.addTypes(modules)
	return library().compiler(v.Stage).WithEnablePrintStatements(true), modules, data, nil
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
	return ast.JSON(value.Value)
}

// Described is an error of OPA's parser or compiler, or of an evaluation, as lines of
// file:row:column and message; any other error as it is.
func Described(err error) error {
	if list, is := errors.AsType[ast.Errors](err); is {
		return describe("", list)
	}
	if failed, is := errors.AsType[*topdown.Error](err); is && failed.Location != nil {
		return errors.New(Renamed(fmt.Sprintf("%s: %s", place(failed.Location), strings.TrimSpace(failed.Message))))
	}
	return err
}
