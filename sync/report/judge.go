// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// namespaceState is how the destination namespace of an import is here.
type namespaceState int

// The zero value is invalid, so that a forgotten field is noticed.
const (
	namespaceThere namespaceState = iota + 1
	namespaceMissing
	namespaceTerminating
	namespaceReserved
)

// situation is everything that decides what is said to source of its export.
type situation struct {
	key          types.NamespacedName
	self, source model.ClusterID
	// others are the remaining members, of which source must not hear.
	others    []model.ClusterID
	imports   bool
	namespace namespaceState
	// seen is what the loop found; nil as long as it did not.
	seen *model.Observation
	// remains reports whether any endpoint of source may be imported.
	remains func() bool
}

// verdict is what is said.
type verdict struct {
	imported        bool
	reason, message string
}

// judge says what came of the export of source here; false if that is not known
// yet, so that what was said before stands. First match wins:
//
//	importing is off                              no    ImportDisabled
//	namespace is the cluster's or Comity's        no    NamespaceReserved
//	namespace is not there, or going              no    NamespaceMissing
//	the loop has not come to this export          not known yet
//	something here is in the way                  no    that problem
//	endpoints of source are left out, not all     yes   that problem
//	all of them are                               no    that problem
//	otherwise                                     yes   Imported
func judge(s situation) (verdict, bool) {
	switch {
	case !s.imports:
		return verdict{reason: model.ReasonImportDisabled, message: fmt.Sprintf(
			"cluster %s runs Comity without importing, since another implementation propagates Services there", s.self)}, true
	case s.namespace == namespaceReserved:
		return verdict{reason: model.ReasonNamespaceReserved, message: fmt.Sprintf(
			"nothing is imported into namespace %s of cluster %s, which is its own or Comity's; export from another namespace", s.key.Namespace, s.self)}, true
	case s.namespace == namespaceMissing:
		return verdict{reason: model.ReasonNamespaceMissing, message: fmt.Sprintf(
			"cluster %s has no namespace %s; create it there", s.self, s.key.Namespace)}, true
	case s.namespace == namespaceTerminating:
		return verdict{reason: model.ReasonNamespaceMissing, message: fmt.Sprintf(
			"namespace %s of cluster %s is being deleted; create it anew there", s.key.Namespace, s.self)}, true
	case s.seen == nil || s.seen.Import == nil || !slices.ContainsFunc(s.seen.Import.Constituents, s.isSource):
		return verdict{}, false
	}
	var left []model.Problem
	for _, p := range s.seen.Problems {
		switch {
		case p.Cluster == s.source:
			left = append(left, p)
		case p.Cluster == "" && s.blocks(p.Reason):
			return verdict{reason: p.Reason, message: s.inTheWay(p.Reason)}, true
		}
	}
	if len(left) == 0 {
		return verdict{imported: true, reason: model.ReasonImported}, true
	}
	return verdict{imported: s.remains(), reason: left[0].Reason, message: s.leftOut(left)}, true
}

// refused is what is said of an export that cannot be read.
func refused(self model.ClusterID, refusal model.Refusal) verdict {
	return verdict{reason: model.ReasonInvalidRecord, message: fmt.Sprintf(
		"cluster %s cannot use what cluster %s publishes: field %s is not valid; run the same version of Comity in both, and see the events of the peer Secret of %s there",
		self, refusal.Cluster, refusal.Field, refusal.Cluster)}
}

func (s *situation) isSource(c model.Constituent) bool { return c.Cluster == s.source }

// blocks reports whether a problem of this cluster's own objects keeps the
// export out. A name that was taken need not: there is a second one.
func (s *situation) blocks(reason string) bool {
	switch reason {
	case model.ReasonForeignImport, model.ReasonRefused, model.ReasonIPFamilyNotSupported:
		return true
	case model.ReasonNameTaken:
		return !slices.ContainsFunc(s.seen.Sources, func(c model.Source) bool { return c.Cluster == s.source })
	}
	return false
}

// inTheWay is told in words of its own: what the problem says is meant for this
// cluster's reader, and may name objects and clusters that are no business of source.
func (s *situation) inTheWay(reason string) string {
	switch reason {
	case model.ReasonForeignImport:
		return fmt.Sprintf("cluster %s has a ServiceImport %s that Comity did not make; rename the Service, or delete that ServiceImport", s.self, s.key)
	case model.ReasonNameTaken:
		return fmt.Sprintf("in namespace %s of cluster %s other objects have the names that the derived Service could have; the events of ServiceImport %s there name them",
			s.key.Namespace, s.self, s.key)
	case model.ReasonIPFamilyNotSupported:
		return fmt.Sprintf("cluster %s has none of the IP families of Service %s; export it with a family that the cluster has", s.self, s.key)
	}
	return fmt.Sprintf("the API server of cluster %s refuses what importing %s needs; the log of Comity there says why", s.self, s.key)
}

// leftOut joins what is said of the endpoints of source, which source may know.
func (s *situation) leftOut(problems []model.Problem) string {
	parts := make([]string, 0, len(problems))
	for _, p := range problems {
		text := p.Message
		if mentions(text, s.others) {
			text = fmt.Sprintf("parts of the export are left out in cluster %s (%s); the events of ServiceImport %s there say which", s.self, p.Reason, s.key)
		}
		if !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	return model.Bound(strings.Join(parts, "; "), maxMessage)
}

// maxMessage is what an ImportRecord may hold.
const maxMessage = 1024

// mentions reports whether text speaks of one of the clusters: "cluster b" or
// "clusters c, b". An id may be a word like any other ("a"), so it counts only
// in that place. It is the second guard: what is said of one cluster's
// endpoints names no other in the first place.
func mentions(text string, clusters []model.ClusterID) bool {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' })
	listing := false
	for i, word := range words {
		switch {
		case strings.EqualFold(word, "clusters"):
			listing = true
		case i > 0 && (listing || strings.EqualFold(words[i-1], "cluster")) && slices.Contains(clusters, model.ClusterID(word)):
			return true
		}
	}
	return false
}
