// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Policy is one policy as its author wrote it.
type Policy struct {
	// Name is unique; violations and errors contain it.
	Name string
	// Module is Rego v1 in a package comity.policies.<name>.
	Module string
	// Params is a JSON object, which the module reads as
	// data.comity.params.<name of its package>. None when empty.
	Params []byte
	// Enforcement is Deny when empty.
	Enforcement v1alpha1.Enforcement
	// Match limits the exports that the policy is evaluated for; all when nil.
	Match *v1alpha1.Match
}

// Result is the result of loading one policy.
type Result struct {
	Name string
	// Err is nil when the policy is in use as given. Otherwise it says where and
	// what, in lines of file:row:column and message for errors of the module.
	Err error
	// Digest is the SHA-256 of the module and parameters in use: those of the
	// last good version when Err is not nil, and empty when there is none.
	Digest string
}

// file is the file name in the errors of the module.
func (p Policy) file() string { return p.Name + ".rego" }

// source is everything that a version is made of; equal sources, equal versions.
func (p Policy) source() string {
	match, err := json.Marshal(p.Match)
	if err != nil {
		// Label selectors are strings and lists of strings.
		panic(fmt.Sprintf("engine: marshal match of policy %s: %v", p.Name, err))
	}
	return sum(p.Module, string(p.Params), string(p.Enforcement), string(match))
}

// sum is the SHA-256 of the parts, kept apart.
func sum(parts ...string) string {
	var all []byte
	for _, part := range parts {
		all = fmt.Appendf(all, "%d:%s", len(part), part)
	}
	digest := sha256.Sum256(all)
	return "sha256:" + hex.EncodeToString(digest[:])
}

// version is a policy that compiled. It never changes.
type version struct {
	name        string
	pkg         string // the last element of the package
	reason      string
	enforcement v1alpha1.Enforcement
	namespaces  labels.Selector // nil for all
	objects     labels.Selector // nil for all
	params      map[string]any
	module      *ast.Module
	sets        map[string]bool // which of deny and warn there are
	source      string
	digest      string
}

func (v *version) file() string { return v.name + ".rego" }

// location is that of the module's package clause.
func (v *version) location() string { return place(v.module.Package.Location) }

// version compiles the policy, alone with the library.
func (e *Engine) version(p Policy) (*version, error) {
	v := &version{
		name:        p.Name,
		enforcement: p.Enforcement,
		source:      p.source(),
		digest:      sum(p.Module, string(p.Params)),
	}
	if err := v.readEnforcement(); err != nil {
		return nil, err
	}
	if err := v.readMatch(p.Match); err != nil {
		return nil, err
	}
	if err := v.readParams(p.Params); err != nil {
		return nil, err
	}
	if err := e.readModule(v, p); err != nil {
		return nil, err
	}
	return v, nil
}

func (v *version) readEnforcement() error {
	switch v.enforcement {
	case "":
		v.enforcement = v1alpha1.Deny
	case v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit:
	default:
		return fmt.Errorf("spec.enforcement: %q is none of Deny, Warn and Audit", v.enforcement)
	}
	return nil
}

func (v *version) readMatch(match *v1alpha1.Match) (err error) {
	if match == nil {
		return nil
	}
	if v.namespaces, err = selector("spec.match.namespaceSelector", match.NamespaceSelector); err != nil {
		return err
	}
	v.objects, err = selector("spec.match.objectSelector", match.ObjectSelector)
	return err
}

// selector is nil for no selector, which selects all here.
func selector(field string, s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // Absence of a selector is an answer.
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; expected a label selector", field, err)
	}
	return selector, nil
}

func (v *version) readParams(params []byte) error {
	v.params = map[string]any{}
	text := strings.TrimSpace(string(params))
	if text == "" || text == "null" {
		return nil
	}
	// OPA's decoder keeps numbers as they are written.
	if err := util.UnmarshalJSON([]byte(text), &v.params); err != nil {
		return fmt.Errorf("spec.parameters: %w; expected an object", err)
	}
	return nil
}

// matches reports whether the policy is to be evaluated for the export. An export
// whose namespace is not known is never exempt.
func (v *version) matches(in decision.Input) bool {
	if v.objects != nil && !v.objects.Matches(labels.Set(in.Object.Labels)) {
		return false
	}
	return v.namespaces == nil || in.Namespace == nil || v.namespaces.Matches(labels.Set(in.Namespace.Labels))
}
