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
	for _, part := range parts(t) {
		if size > limit {
			break
		}
		size += typeSize(part, limit-size)
	}
	return size
}

// parts are the types of which a type consists; some may be nil.
func parts(t types.Type) (all []types.Type) {
	switch t := t.(type) {
	case *types.NamedType:
		return []types.Type{t.Type}
	case *types.Array:
		for i := range t.Len() {
			all = append(all, t.Select(i))
		}
		return append(all, t.Dynamic())
	case *types.Object:
		for _, property := range t.StaticProperties() {
			all = append(all, property.Value)
		}
		if dynamic := t.DynamicProperties(); dynamic != nil {
			all = append(all, dynamic.Key, dynamic.Value)
		}
	case *types.Set:
		return []types.Type{t.Of()}
	case types.Any:
		return t
	}
	return all
}
