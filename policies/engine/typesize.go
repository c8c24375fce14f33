// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/types"
)

// maxType is how many parts the type of an answer may have. Where policies are compiled
// together, their types are compared, part by part. Types share parts: what is short in
// Rego can have more parts than could ever be compared.
const maxType = 10_000

// checkSize refuses a policy whose answer has too large a type.
func checkSize(compiler *ast.Compiler, v *version) error {
	for _, name := range []string{denySet, warnSet} {
		if !v.sets[name] {
			continue
		}
		if typeSize(compiler.TypeEnv.GetByRef(mustPath(packagePrefix+v.pkg+"."+name)), maxType) > maxType {
			return fmt.Errorf("%s: the entries of %s are nested values with more than %d parts; expected objects {\"msg\": ..., \"field\": ..., \"remedy\": ...}, with strings",
				v.location(), name, maxType)
		}
	}
	return nil
}

// typeSize counts the parts of a type; it stops beyond a limit.
func typeSize(t types.Type, limit int) int {
	size := 1
	add := func(part types.Type) bool {
		if part != nil && size <= limit {
			size += typeSize(part, limit-size)
		}
		return size <= limit
	}
	switch t := t.(type) {
	case *types.NamedType:
		add(t.Type)
	case *types.Array:
		for i := 0; i < t.Len() && add(t.Select(i)); i++ {
		}
		add(t.Dynamic())
	case *types.Object:
		for _, property := range t.StaticProperties() {
			if !add(property.Value) {
				break
			}
		}
		if dynamic := t.DynamicProperties(); dynamic != nil {
			add(dynamic.Key)
			add(dynamic.Value)
		}
	case *types.Set:
		add(t.Of())
	case types.Any:
		for _, one := range t {
			if !add(one) {
				break
			}
		}
	}
	return size
}
