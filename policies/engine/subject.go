// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/lru"
	"sigs.k8s.io/json"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Subject is what the policies of one stage decide on. It is data, so that another process
// can evaluate it; see Writer. It is not safe for concurrent use.
type Subject struct {
	Stage     v1alpha1.Stage
	Operation decision.Operation
	// Namespace and Name are those of the export, Cluster is the source of an import.
	Namespace, Name, Cluster string
	// Stands is how `existing: Keep` softens a denial.
	Stands decision.Softening
	// Unread and Unknown are those of an ImportInput.
	Unread, Unknown bool
	// Text is the JSON of the parts of the input, which end at Ends.
	Text []byte
	Ends [parts]int
	// Before is the export before an update of what is published; nil for anything else.
	Before *Subject

	fields map[string]any // of the input, after read
	lazy   *ast.Term      // the input, of which only those fields become terms that policies read
}

// The parts of an input: fields, of which the first three are those of one request, in the
// place of those in the rest.
const (
	partRest = iota
	partObject
	partOldObject
	partExport
	partService
	partNamespace
	partDestinations
	partPeers
	parts
)

var partNames = [parts]string{"", "object", "oldObject", "export", "service", "namespace", "destinations", "peers"}

// String names it in the failures of policies.
func (s *Subject) String() string {
	if s.Stage == v1alpha1.StageImport {
		return fmt.Sprintf("ServiceImport %s/%s from cluster %s", s.Namespace, s.Name, s.Cluster)
	}
	return "ServiceExport " + s.Namespace + "/" + s.Name
}

// matches reports whether a policy of its stage is to be evaluated for it. An export whose namespace
// is not known is never exempt, and an update is not if the export was matched before it:
// otherwise whoever drops a label drops the policy.
func (s *Subject) matches(v *version) bool {
	switch {
	case !v.isOf(s.Stage):
		return false
	case s.Stage == v1alpha1.StageExport && v.objects != nil && !s.selected(v.objects, partObject) && !s.selected(v.objects, partOldObject):
		return false
	}
	return v.namespaces == nil || s.fields[partNames[partNamespace]] == ast.NullValue || s.selected(v.namespaces, partNamespace)
}

// selected reports whether a selector selects the object that is a part; false for none.
func (s *Subject) selected(selector labels.Selector, part int) bool {
	var object ast.Value
	switch given := s.fields[partNames[part]].(type) {
	case map[string]any:
		object = ast.LazyObject(given)
	case ast.Object:
		object = given
	default:
		return false
	}
	set := labels.Set{}
	if given, err := object.Find(labelsPath); err == nil {
		given.(ast.Object).Foreach(func(key, value *ast.Term) { set[string(key.Value.(ast.String))] = string(value.Value.(ast.String)) })
	}
	return selector.Matches(set)
}

var labelsPath = ast.Ref{ast.StringTerm("metadata"), ast.StringTerm("labels")}

// unknown says what a policy reads that is not known of it; empty for nothing.
func (s *Subject) unknown(v *version) string {
	if !s.Unread && !s.Unknown {
		return ""
	}
	for path := range v.reads {
		field, of, _ := strings.Cut(path, ".")
		export := path == anyField || field == "export" && of != "namespace" && of != "name"
		labels := path == anyField || field == "source" && of != "cluster"
		if s.Unread && export || s.Unknown && labels {
			return fmt.Sprintf("policy %s reads what is not known of cluster %s yet", v.Name, s.Cluster)
		}
	}
	return ""
}

// read reads the parts. terms may be nil. Of those of one request, only those fields become
// terms that policies read, when they read them.
func (s *Subject) read(terms *lru.Cache) error {
	if s.fields != nil {
		return nil
	}
	fields, begin := make(map[string]any, 2*parts), 0
	for part, end := range s.Ends {
		text := s.Text[begin:end]
		begin = end
		if len(text) == 0 {
			continue
		}
		var err error
		cache := terms
		if len(text) > maxObject && part != partDestinations && part != partPeers { // which grow with the clusters alone
			cache = nil
		}
		switch part {
		case partObject, partOldObject, partExport:
			var object map[string]any
			err = json.UnmarshalCaseSensitivePreserveInts(text, &object)
			fields[partNames[part]] = object
		case partRest:
			var object ast.Value
			if object, err = termOf(cache, text); err == nil {
				object.(ast.Object).Foreach(func(name, value *ast.Term) { fields[string(name.Value.(ast.String))] = value.Value })
			}
		default:
			fields[partNames[part]], err = termOf(cache, text)
		}
		if err != nil {
			return fmt.Errorf("read the input: %w", err)
		}
	}
	s.fields, s.lazy = fields, ast.NewTerm(ast.LazyObject(fields))
	return nil
}

// value is the input of the policies, after read: all of it if a policy does with it what
// needs that.
func (s *Subject) value(whole bool) (*ast.Term, error) {
	if whole {
		value, err := ast.InterfaceToValue(s.fields)
		return ast.NewTerm(value), err
	}
	return s.lazy, nil
}

const (
	// maxTerms is how many terms are kept. Those of 50 peers in one namespace take some 60 kB.
	maxTerms = 1024
	// maxObject is the size of the largest object that is kept, in bytes of protobuf or JSON:
	// whoever may write Services must not fill the memory with annotations.
	maxObject = 2 << 10
)

// termOf is the term of JSON. It never changes, so evaluations share it.
func termOf(terms *lru.Cache, text []byte) (ast.Value, error) {
	read := func() (ast.Value, error) { return ast.ValueFromReader(bytes.NewReader(text)) }
	if terms == nil {
		return read()
	}
	return kept(terms, sha256.Sum256(text), read)
}
