// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// regoLibrary is the Rego that policies may import, in packages below comity.lib, and what input is,
// by stage.
type regoLibrary struct {
	modules map[v1alpha1.Stage]map[string]*ast.Module
	schemas map[v1alpha1.Stage]*ast.SchemaSet
	digest  string
}

// library is that of Comity. It is embedded, so nothing but a fault of its own keeps it from being
// compiled.
var library = sync.OnceValue(func() *regoLibrary {
	r, err := readLibrary(policies.Library())
	if err != nil {
		panic(fmt.Sprintf("policy library: %v", err))
	}
	return r
})

// readLibrary compiles Rego, by file name, for each stage.
func readLibrary(files map[string]string) (*regoLibrary, error) {
	r := &regoLibrary{modules: map[v1alpha1.Stage]map[string]*ast.Module{}, schemas: map[v1alpha1.Stage]*ast.SchemaSet{}, digest: sum(files)}
	whole := map[string]*ast.Module{}
	for file, text := range files {
		module, err := Parse(file, text)
		if err != nil {
			return nil, err
		}
		whole["comity/"+file] = module
	}
	for _, stage := range Stages {
		r.modules[stage], r.schemas[stage] = maps.Clone(whole), ast.NewSchemaSet()
		maps.DeleteFunc(r.modules[stage], func(file string, _ *ast.Module) bool { return isOfAnother(stage, file) })
		r.schemas[stage].Put(ast.SchemaRootRef, inputSchema(stage))
		if _, err := r.compile(stage, nil); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// isOfAnother reports whether policies with the stage may not use a file of the library: it has the
// name of another stage, such as export.rego.
func isOfAnother(stage v1alpha1.Stage, file string) bool {
	return slices.ContainsFunc(Stages, func(other v1alpha1.Stage) bool {
		return other != stage && path.Base(file) == strings.ToLower(string(other))+".rego"
	})
}

// compile compiles modules of one stage together with the library.
func (r *regoLibrary) compile(stage v1alpha1.Stage, modules map[string]*ast.Module) (*ast.Compiler, error) {
	all := maps.Clone(r.modules[stage])
	maps.Copy(all, modules)
	compiler := r.compiler(stage)
	compiler.Compile(all)
	if compiler.Failed() {
		return nil, describe("", compiler.Errors)
	}
	return compiler, nil
}

func (r *regoLibrary) compiler(stage v1alpha1.Stage) *ast.Compiler {
	return ast.NewCompiler().
		WithCapabilities(Capabilities()).
		WithSchemas(r.schemas[stage]).
		WithUseTypeCheckAnnotations(true). // those of addTypes
		WithStrict(true).
		WithDefaultRegoVersion(ast.RegoV1)
}
