// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

const (
	// maxRecursion is how deep OPA's parser may recurse, which it does twice for each bracket
	// and operator: parser and compiler take stack for it, and Go ends a process whose stack is
	// full. People nest less than ten brackets.
	maxRecursion = 1000
	// maxErrors is how many errors of one module are listed; more do not fit a condition.
	maxErrors = 10

	packagePrefix = "comity.policies."
	libraryPath   = "comity.lib"
	paramsPath    = "comity.params"
)

var (
	// identifier is what the last element of a package may be: it becomes part
	// of generated Rego and needs no quotes there.
	identifier = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	oneWord    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
)

// readModule parses and compiles the module and fills in what comes from it.
func (v *version) readModule() error {
	if v.Refused != "" {
		return errors.New(v.Refused)
	}
	var err error
	if v.module, err = Parse(v.file(), v.Rego); err != nil {
		return err
	}
	if err := joined([]error{v.readPackage(), v.readReason(), v.readSets()}); err != nil {
		return err
	}
	modules := map[string]*ast.Module{v.file(): v.module}
	v.addTypes(modules)
	if v.compiler, err = library().compile(v.Stage, modules); err != nil {
		return err
	}
	// Terms, not Go values: what is stored is converted once and not in every evaluation.
	v.store = inmem.NewFromObjectWithOpts(map[string]any{"comity": map[string]any{"params": map[string]any{v.pkg: v.params}}}, inmem.OptReturnASTValuesOnRead(true))
	c := checking{v, v.compiler}
	rules := c.reachable(func(name string) bool { return !strings.HasPrefix(name, testPrefix) })
	v.readInput(rules)
	return joined(slices.Concat(c.checkRules(), c.checkAnswer(), v.checkAudit(rules)))
}

// Parse reads one Rego file as the engine does, be it a policy or its tests. The error has lines of
// file:row:column and message. The parser would read a byte order mark that others see.
func Parse(file, text string) (*ast.Module, error) {
	if strings.HasPrefix(text, "\ufeff") {
		return nil, fmt.Errorf("%s:1:1: the module begins with a byte order mark; expected plain UTF-8, save it without", file)
	}
	capabilities := Capabilities()
	// ParseModule has no option for this limit.
	_, _, deep := ast.NewParser().WithFilename(file).WithReader(strings.NewReader(text)).WithCapabilities(capabilities).
		WithRegoVersion(ast.RegoV1).WithMaxRecursionDepth(maxRecursion).Parse()
	if len(deep) > 0 {
		return nil, describe(file, deep)
	}
	module, err := ast.ParseModuleWithOpts(file, text, ast.ParserOptions{
		Capabilities:      capabilities,
		ProcessAnnotation: true,
		RegoVersion:       ast.RegoV1,
	})
	if err != nil {
		return nil, describe(file, err)
	}
	for _, annotations := range module.Annotations {
		annotations.Schemas = nil // an author cannot say what input is
	}
	return module, nil
}

// describe is an error of OPA as lines of file:row:column and message.
func describe(file string, err error) error {
	list, is := errors.AsType[ast.Errors](err)
	if !is {
		return fmt.Errorf("%s:1:1: %w", file, err)
	}
	list.Sort()
	var errs []error
	for _, item := range list {
		errs = append(errs, errors.New(worded(item)))
	}
	return joined(errs)
}

// place is file:row:column.
func place(l *ast.Location) string {
	if l == nil {
		return "?"
	}
	return fmt.Sprintf("%s:%d:%d", l.File, l.Row, l.Col)
}

// readPackage reads the one element after comity.policies.
func (v *version) readPackage() error {
	path := strings.TrimPrefix(v.module.Package.Path.String(), "data.")
	name, found := strings.CutPrefix(path, packagePrefix)
	if !found || !identifier.MatchString(name) {
		return fmt.Errorf("%s: package %s; expected %s<name>, where the name is of lower-case letters, digits and _",
			place(v.module.Package.Location), path, packagePrefix)
	}
	v.pkg = name
	return nil
}

// readReason reads custom.reason of the package's METADATA, so that no rule can change it.
// Without one it is made from the policy's name.
func (v *version) readReason() error {
	v.reason = ReasonOf(v.Name)
	for _, annotations := range v.module.Annotations {
		given, has := annotations.Custom["reason"]
		if annotations.Scope != "package" || !has {
			continue
		}
		word, _ := given.(string)
		if !oneWord.MatchString(word) {
			return fmt.Errorf("%s: METADATA custom.reason is %v; expected one word such as ScopeNotAllowed", place(annotations.Location), given)
		}
		v.reason = word
	}
	return nil
}

// ReasonOf is the reason of a policy whose METADATA has none: NoExternalName of
// no-external-name. A name that begins with a digit, which a reason cannot, gets a prefix.
func ReasonOf(name string) string {
	var b strings.Builder
	for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == '.' }) {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	if word := b.String(); oneWord.MatchString(word) {
		return word
	}
	return "Policy" + b.String()
}
