// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Scope says which clusters an export goes to: every member, or a list. The
// zero value holds no cluster at all.
type Scope struct {
	all      bool
	clusters sets.Set[ClusterID] // nil when all
}

// ScopeAll is the scope of an export that names no cluster: every member,
// present and future.
func ScopeAll() Scope { return Scope{all: true} }

// ScopeOf is the scope of exactly these clusters, in any order.
func ScopeOf(ids ...ClusterID) Scope { return Scope{clusters: sets.New(ids...)} }

// ParseScope reads the value of comity.dev/export-to: cluster ids separated by
// commas, white space around them ignored, repetitions allowed. It fails on an
// empty list, an empty item and an item that is no cluster id.
func ParseScope(text string) (Scope, error) {
	ids, err := items[ClusterID](text, "cluster", "cluster ids", "b,c")
	if err != nil {
		return Scope{}, err
	}
	return ScopeOf(ids...), nil
}

// items are those of a list of an annotation, separated by commas, white space around them
// ignored. It fails on an empty list, and on an item that is empty or not one RFC 1123 label.
func items[T ~string](text, one, many, example string) (out []T, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("the list names no %s; expected %s separated by commas, such as %q", one, many, example)
	}
	for i, item := range strings.Split(text, ",") {
		item = strings.TrimSpace(item)
		switch {
		case item == "":
			return nil, fmt.Errorf("item %d of %s is empty; expected %s separated by single commas, such as %q", i+1, Quote(text), many, example)
		case len(validation.IsDNS1123Label(item)) > 0:
			return nil, fmt.Errorf("item %d of %s is %s, which names no %s; expected %s separated by commas, such as %q, each one RFC 1123 label "+
				"(lower-case letters, digits and '-', at most 63 characters, no dot)", i+1, Quote(text), Quote(item), one, many, example)
		}
		out = append(out, T(item))
	}
	return out, nil
}

// ScopeOfExport is what a ServiceExport asks for: its annotation
// comity.dev/export-to, or the label export-to of one that was stored before
// the webhook could move it there, or every cluster. An error never comes with
// a scope that holds a cluster.
func ScopeOfExport(export metav1.Object) (Scope, error) {
	if _, set := export.GetAnnotations()[AnnotationExportTo]; set {
		return scopeIn(export.GetAnnotations(), AnnotationExportTo)
	}
	return scopeIn(export.GetLabels(), LabelExportTo)
}

// scopeIn is the scope that one of the values of an object states, or every cluster.
func scopeIn(values map[string]string, key string) (Scope, error) {
	if text, set := values[key]; set {
		return ParseScope(text)
	}
	return ScopeAll(), nil
}

// ScopeOfNamespace is how far a namespace lets its exports go: its annotation
// comity.dev/export-to, or every cluster.
func ScopeOfNamespace(namespace metav1.Object) (Scope, error) {
	return scopeIn(namespace.GetAnnotations(), AnnotationExportTo)
}

// SourcesOfNamespace are the clusters from which is imported into a namespace: those
// of its annotation comity.dev/import-from, or every cluster.
func SourcesOfNamespace(namespace metav1.Object) (Scope, error) {
	return scopeIn(namespace.GetAnnotations(), AnnotationImportFrom)
}

// ScopeOfSelector is the scope of the members whose properties match a label
// selector (comity.dev/export-to-selector): the members there are now, so that
// it has to be read again when they change. It fails on an empty selector, which
// would match all, and on one that cannot be read; an error never comes with a
// scope that holds a cluster.
func ScopeOfSelector(text string, members []Member) (Scope, error) {
	if strings.TrimSpace(text) == "" {
		return Scope{}, fmt.Errorf("the selector is empty; expected a label selector such as \"region=eu,tier!=test\"")
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return Scope{}, fmt.Errorf("%q is not a label selector such as \"region=eu,tier!=test\": %w", text, err)
	}
	var ids []ClusterID
	for _, m := range members {
		if selector.Matches(labels.Set(m.Labels)) {
			ids = append(ids, m.ID)
		}
	}
	return ScopeOf(ids...), nil
}

// All reports whether the scope is every member.
func (s Scope) All() bool { return s.all }

// Empty reports whether no cluster can be in the scope.
func (s Scope) Empty() bool { return !s.all && len(s.clusters) == 0 }

// Clusters lists the named clusters in order; none when the scope is every member.
func (s Scope) Clusters() []ClusterID { return sets.List(s.clusters) }

// Contains reports whether id is in the scope.
func (s Scope) Contains(id ClusterID) bool { return s.all || s.clusters.Has(id) }

// Intersect is the scope of the clusters that are in both.
func (s Scope) Intersect(other Scope) Scope {
	switch {
	case s.all:
		return other
	case other.all:
		return s
	}
	return Scope{clusters: s.clusters.Intersection(other.clusters)}
}

// String is "every cluster", or the ids joined by commas.
func (s Scope) String() string {
	if s.all {
		return "every cluster"
	}
	return Join(s.Clusters(), ",")
}

// EffectiveScope is where a ServiceExport is published: the part of its list
// (ScopeOfExport) that its selector (ScopeOfSelector) and its Namespace allow.
// Publisher and policies both use it, so that a policy decides on the scope that is
// published. namespace is nil if there is none, which sets no limit.
//
// A scope that cannot be read is never taken for a wider one: an error, which names
// object and annotation, comes with a scope that holds no cluster. It is an error,
// too, if annotations allow no cluster in common.
func EffectiveScope(key types.NamespacedName, export metav1.Object, namespace *corev1.Namespace, members []Member) (Scope, error) {
	scope, err := ListedScope(key, export, namespace)
	text, set := export.GetAnnotations()[AnnotationExportToSelector]
	if err != nil || !set {
		return scope, err
	}
	selected, err := ScopeOfSelector(text, members)
	return narrowed(scope, "ServiceExport "+key.String(), AnnotationExportToSelector, selected, err)
}

// ListedScope is the part of EffectiveScope that depends on no member: the lists of the
// ServiceExport and of its Namespace, and every cluster without one.
func ListedScope(key types.NamespacedName, export metav1.Object, namespace *corev1.Namespace) (Scope, error) {
	asked, err := ScopeOfExport(export)
	scope, err := narrowed(ScopeAll(), "ServiceExport "+key.String(), AnnotationExportTo, asked, err)
	if err != nil || namespace == nil {
		return scope, err
	}
	limit, err := ScopeOfNamespace(namespace)
	return narrowed(scope, "Namespace "+key.Namespace, AnnotationExportTo, limit, err)
}

// narrowed is the part of scope that an annotation of an object allows, unless err says why that
// cannot be read.
func narrowed(scope Scope, object, annotation string, allowed Scope, err error) (Scope, error) {
	if err != nil {
		return Scope{}, fmt.Errorf("%s, annotation %s: %w; it is exported nowhere until that is corrected", object, annotation, err)
	}
	both := scope.Intersect(allowed)
	if both.Empty() {
		err = fmt.Errorf("%s, annotation %s: allows %s of the members, the other annotations of the ServiceExport and its Namespace allow %s, and no cluster is in both; change one of them",
			object, annotation, cmp.Or(allowed.String(), "none"), scope)
	}
	return both, err
}
