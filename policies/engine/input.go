// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
)

// fields are the fields of the input: terms, or values that become terms by their
// JSON, save that a nil map is {} and a nil list is [], so that no rule meets an
// unexpected null, and that managedFields are left out, which are bookkeeping and often
// most of an object. What the input points to is not changed. What belongs to the request is converted for each request. Service, Namespace,
// destinations and peers usually are those of an earlier one, and their terms are
// kept: they are most of the input, and grow with the number of clusters.
func (c *termCache) fields(in decision.Input) (map[string]any, error) {
	object, err := exportFields(in.Object)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{
		"apiVersion": in.APIVersion, "operation": string(in.Operation), "subject": string(in.Subject), "object": object,
		"published": in.Published, "ports": notNil(in.Ports), "cluster": in.Cluster,
		"scope": scopeValue(in.Scope), "namespaceScope": scopeValue(in.NamespaceScope), "effectiveScope": scopeValue(in.EffectiveScope),
	}
	if in.UserInfo != nil {
		fields["userInfo"] = &decision.UserInfo{Username: in.UserInfo.Username, Groups: notNil(in.UserInfo.Groups)}
	}
	if in.OldObject != nil {
		if fields["oldObject"], err = exportFields(in.OldObject); err != nil {
			return nil, err
		}
	}
	var problems [4]error
	fields["service"], problems[0] = storedObject(c, withoutManagedFields(in.Service))
	fields["namespace"], problems[1] = storedObject(c, withoutManagedFields(in.Namespace))
	fields["destinations"], problems[2] = c.destinations(in.Destinations)
	fields["peers"], problems[3] = c.peers(in.Peers)
	return fields, cmp.Or(problems[:]...)
}

// everywhere is the scope that nothing narrows, which most exports have.
var everywhere = ast.MustInterfaceToValue(decision.Scope{All: true, Clusters: []string{}})

func scopeValue(scope decision.Scope) any {
	if scope.All && len(scope.Clusters) == 0 && scope.Problem == "" {
		return everywhere
	}
	scope.Clusters = notNil(scope.Clusters)
	return scope
}

// exportFields are the fields of the export as its JSON has them, with spec; nil for nil.
func exportFields(export *mcsv1beta1.ServiceExport) (any, error) {
	if export == nil {
		return nil, nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(withoutManagedFields(export))
	if err != nil {
		return nil, fmt.Errorf("write the input: %w", err)
	}
	if fields["spec"] == nil {
		fields["spec"] = map[string]any{}
	}
	return fields, nil
}

// valueOf is the JSON of x as a term.
func valueOf[T any](x T) (ast.Value, error) {
	fields, err := plain(x)
	if err != nil {
		return nil, err
	}
	return ast.InterfaceToValue(fields)
}

// plain is x as encoding/json would read its JSON.
func plain[T any](x T) (any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&struct {
		Value T `json:"value"`
	}{x})
	if err != nil {
		return nil, fmt.Errorf("write the input: %w", err)
	}
	return fields["value"], nil
}

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
