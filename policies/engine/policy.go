// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Policy is one policy as its author wrote it.
type Policy struct {
	// Name is unique; violations and errors contain it.
	Name string
	// ExportPolicySpec is that of the object, with the exceptions in force: the engine has no clock. See
	// FromObject. What is empty has its default, as in an API server.
	v1alpha1.ExportPolicySpec
	// Refused is why the policy is not to be used, nor compiled; empty if it is.
	Refused string `json:",omitempty"`
}

// FromObject is an ExportPolicy as the engine takes it at a time: with the exceptions
// that are in force then.
func FromObject(object *v1alpha1.ExportPolicy, now time.Time) Policy {
	p := Policy{Name: object.Name, ExportPolicySpec: object.Spec}
	// Those that are over are left out, so that a policy is loaded again when one ends.
	p.Exceptions = slices.DeleteFunc(slices.Clone(p.Exceptions), func(e v1alpha1.Exception) bool { return IsOver(e, now) })
	return p
}

// Result is the result of loading one policy.
type Result struct {
	Name string
	// Err is nil when the policy is in use. Otherwise it says where and what, in
	// lines of file:row:column and message for errors of the module.
	Err error
	// Digest is the SHA-256 of the policy in use, as far as it bears on answers, and of
	// the library; empty when Err is not nil.
	Digest string
}

// file is the file name in the errors of the module.
func (p Policy) file() string { return p.Name + ".rego" }

// Digest is the Result.Digest of the policy with the library of Comity, whether it can be
// used or not.
func (p Policy) Digest() string {
	p.Refused = ""
	return sum([]string{sum(p), library().digest})
}

// sum is the SHA-256 of a policy, or of strings, and lists and maps of them.
func sum(of any) string {
	text, err := json.Marshal(of)
	if err != nil { // parameters that are no JSON, for which the policy is refused
		text = []byte(err.Error())
	}
	digest := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(digest[:])
}

// version is a policy as it is stored, compiled if it could be.
type version struct {
	// Policy is what is stored, with the defaults. Stage is empty if it is not known: the
	// policy does not exist.
	Policy
	// err says why the policy cannot be used; nil when it can.
	err        error
	pkg        string // the last element of the package
	reason     string
	namespaces labels.Selector // nil for all
	objects    labels.Selector // nil for all
	params     map[string]any
	grace      time.Duration      // that of what it denies
	schema     *schema.Structural // of the parameters; nil for none
	module     *ast.Module
	compiler   *ast.Compiler            // of the module and the library
	query      ast.Body                 // of those of deny and warn that there are
	store      storage.Store            // of the parameters
	reads      map[string]*ast.Location // see readInput
	whole      bool                     // it needs all of the input at once
	source     string                   // the digest of everything that it is made of; equal sources, equal versions
	digest     string                   // empty with an error
}

// newVersion compiles the policy, alone with the library. With an error, what was read
// before it is set: a match that cannot be read selects every export.
func newVersion(p Policy) *version {
	v := &version{Policy: p, source: sum(p), digest: p.Digest()}
	v.Stage, v.Enforcement = cmp.Or(v.Stage, v1alpha1.StageExport), cmp.Or(v.Enforcement, v1alpha1.Deny)
	if v.Grace != nil && v.Stage != v1alpha1.StageImport { // where what is denied is not imported
		v.grace = v.Grace.Duration
	}
	if err := cmp.Or(v.readMatch(), v.readParams(), v.readModule()); err != nil {
		return v.unusable(err)
	}
	return v
}

// unusable is the version as one that is not used because of err. It still knows
// which exports it matches.
func (v *version) unusable(err error) *version {
	unusable := *v
	unusable.err, unusable.digest = err, ""
	return &unusable
}

// errMissing is the error of a required policy that does not exist.
var errMissing = errors.New("it does not exist, and this cluster requires it (--require-policies)")

// problem says in one line why the version cannot be used.
func (v *version) problem() string {
	first, _, _ := strings.Cut(v.err.Error(), "\n")
	if errors.Is(v.err, errMissing) {
		return fmt.Sprintf("policy %s: %s", v.Name, first)
	}
	return fmt.Sprintf("policy %s cannot be used as it is stored (%s)", v.Name, first)
}

func (v *version) readMatch() (err error) {
	if v.Match == nil {
		return nil
	}
	var other error
	v.namespaces, err = selector("spec.match.namespaceSelector", v.Match.NamespaceSelector)
	v.objects, other = selector("spec.match.objectSelector", v.Match.ObjectSelector)
	return cmp.Or(err, other)
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

// IsOver reports whether the last day of an exception has passed.
func IsOver(e v1alpha1.Exception, now time.Time) bool { return !now.Before(EndOf(e)) }

// EndOf is the end of the last day of an exception, in UTC; in the past for what is no date, which no
// API server stores.
func EndOf(e v1alpha1.Exception) time.Time {
	day, _ := time.Parse(time.DateOnly, e.Until)
	return day.AddDate(0, 0, 1)
}
