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
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/comity-mcs/comity/policies"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Policy is one policy as its author wrote it.
type Policy struct {
	// Name is unique; violations and errors contain it.
	Name string
	// Module is Rego v1 in a package comity.policies.<name>.
	Module string
	// Stage is Export when empty.
	Stage v1alpha1.Stage
	// Params is a JSON object, which the module reads as
	// data.comity.params.<name of its package>. None when empty.
	Params []byte
	// ParametersSchema is a structural schema of Params, which also gives their defaults;
	// see INPUT.md. No schema when empty.
	ParametersSchema []byte
	// Enforcement is Deny when empty.
	Enforcement v1alpha1.Enforcement
	// Existing is Withdraw when empty.
	Existing v1alpha1.Existing
	// Grace is the Violation.Grace of what the policy denies. A policy with stage Import
	// has none.
	Grace time.Duration
	// Exceptions are those in force: the engine has no clock. See FromObject.
	Exceptions []v1alpha1.Exception
	// Match limits the exports that the policy is evaluated for; all when nil.
	Match *v1alpha1.Match
	// Refused is why the policy is not to be used, nor compiled; empty if it is.
	Refused string `json:",omitempty"`
}

// FromObject is an ExportPolicy as the engine takes it at a time: with the exceptions
// that are in force then.
func FromObject(object *v1alpha1.ExportPolicy, now time.Time) Policy {
	spec := &object.Spec
	p := Policy{
		Name:        object.Name,
		Module:      spec.Rego,
		Stage:       spec.Stage,
		Enforcement: spec.Enforcement,
		Existing:    spec.Existing,
		Match:       spec.Match,
		// Those that are over are left out, so that a policy is loaded again when one ends.
		Exceptions: slices.DeleteFunc(slices.Clone(spec.Exceptions), func(e v1alpha1.Exception) bool { return IsOver(e, now) }),
	}
	if spec.Parameters != nil {
		p.Params = spec.Parameters.Raw
	}
	if spec.ParametersSchema != nil {
		p.ParametersSchema = spec.ParametersSchema.Raw
	}
	if spec.Grace != nil {
		p.Grace = spec.Grace.Duration
	}
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
	// Quarantine is why the policy is not in use although it may compile; empty otherwise.
	Quarantine string
}

// file is the file name in the errors of the module.
func (p Policy) file() string { return p.Name + ".rego" }

// source is everything that a version is made of; equal sources, equal versions.
func (p Policy) source() string {
	text, err := json.Marshal(p)
	if err != nil { // it has strings, bytes and lists of them
		panic(fmt.Sprintf("engine: marshal policy %s: %v", p.Name, err))
	}
	return sum(string(text))
}

// Digest is the Result.Digest of the policy with the library of Comity, whether it can be
// used or not.
func (p Policy) Digest() string { return p.digest(librarySum()) }

var librarySum = sync.OnceValue(func() string { return sumOf(policies.Library()) })

func (p Policy) digest(library string) string {
	p.Refused = ""
	return sum(p.source(), library)
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

// sumOf is the SHA-256 of files, by name.
func sumOf(files map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		parts = append(parts, name, files[name])
	}
	return sum(parts...)
}

// version is a policy as it is stored, compiled if it could be.
type version struct {
	// Policy is what is stored, with the defaults. Stage is empty if it is not known: the
	// policy does not exist, or names another.
	Policy
	// err says why the policy cannot be used; nil when it can.
	err        error
	pkg        string // the last element of the package
	reason     string
	namespaces labels.Selector // nil for all
	objects    labels.Selector // nil for all
	params     map[string]any
	schema     *schema.Structural // of the parameters; nil for none
	module     *ast.Module
	sets       map[string]bool          // which of deny and warn there are
	reads      map[string]*ast.Location // see inputPaths
	whole      bool                     // it needs all of the input at once
	source     string
	digest     string // empty with an error
}

// version compiles the policy, alone with the library. With an error, what was read
// before it is set: a match that cannot be read selects every export.
func (e *Engine) version(p Policy) (*version, error) {
	defer e.opts.Watch(p.Name, compileTime)()
	v := &version{Policy: p, source: p.source(), digest: p.digest(e.librarySum)}
	return v, cmp.Or(v.readEnums(), v.readMatch(), v.checkExceptions(), v.readParams(), e.readModule(v))
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

// blocks reports whether the exports that the version matches cannot be evaluated,
// because a policy that might deny them cannot be used.
func (v *version) blocks() bool { return v.err != nil && v.Enforcement == v1alpha1.Deny }

// readEnums reads the fields that are one of some words. A stage that is unknown is that of
// every evaluation, and an enforcement that is unknown denies.
func (v *version) readEnums() error {
	if v.Stage == v1alpha1.StageImport {
		v.Grace = 0 // what is denied is not imported
	}
	return cmp.Or(
		oneOf("spec.stage", &v.Stage, "", v1alpha1.StageExport, v1alpha1.StageImport),
		oneOf("spec.enforcement", &v.Enforcement, v1alpha1.Deny, v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit),
		oneOf("spec.existing", &v.Existing, v1alpha1.Withdraw, v1alpha1.Withdraw, v1alpha1.Keep),
	)
}

// oneOf makes an empty field the first of the words, and one that is none of them fallback.
func oneOf[T ~string](field string, given *T, fallback T, words ...T) error {
	if *given == "" {
		*given = words[0]
	}
	if slices.Contains(words, *given) {
		return nil
	}
	err := fmt.Errorf("%s: %q is none of %v", field, *given, words)
	*given = fallback
	return err
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

// checkExceptions refuses what nobody could review later, and the definition lets pass.
func (v *version) checkExceptions() error {
	for i, e := range v.Exceptions {
		at := fmt.Sprintf("spec.exceptions[%d]", i)
		if _, ok := EndOf(e); !ok {
			return fmt.Errorf("%s.until: %q is no date; expected the last day of the exception, such as 2027-01-31", at, e.Until)
		}
		if strings.TrimSpace(e.Reason) == "" {
			return fmt.Errorf("%s.reason: it is empty; expected why there is an exception", at)
		}
	}
	return nil
}

// IsOver reports whether the last day of an exception has passed. One whose date
// cannot be read is not over: the policy is refused because of it.
func IsOver(e v1alpha1.Exception, now time.Time) bool {
	end, ok := EndOf(e)
	return ok && !now.Before(end)
}

// EndOf is the end of the last day of an exception, in UTC; false if its date cannot
// be read.
func EndOf(e v1alpha1.Exception) (time.Time, bool) {
	day, err := time.Parse(time.DateOnly, e.Until)
	return day.AddDate(0, 0, 1), err == nil
}

// exception says until when and why an export is excepted; false if it is not.
func (v *version) exception(namespace, name string) (string, bool) {
	for _, e := range v.Exceptions {
		if e.Namespace == namespace && (e.Name == "" || e.Name == name) {
			return fmt.Sprintf("until %s (%s)", e.Until, e.Reason), true
		}
	}
	return "", false
}
