// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/open-policy-agent/opa/v1/ast"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// needsWhole reports whether rules, which were compiled, may do with input as a whole what
// an input that is converted bit by bit does not support: give it to another rule or
// to a builtin, which may write it as JSON, or replace a part of it by `with`.
func needsWhole(rules []*ast.Rule, reads map[string]*ast.Location) bool {
	_, whole := reads[anyField]
	for _, rule := range rules {
		ast.WalkExprs(rule, func(expr *ast.Expr) bool {
			whole = whole || len(expr.With) > 0
			return false
		})
	}
	return whole
}

func withoutManagedFields[T any, P interface {
	*T
	metav1.Object
}](object P) P {
	if object == nil || len(object.GetManagedFields()) == 0 {
		return object
	}
	shallow := *object
	P(&shallow).SetManagedFields(nil)
	return &shallow
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func notNilMap(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
