// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/comity-mcs/comity/sync/model"
)

// maxNamespaces bounds the list that the namespace of every export is compared with.
const maxNamespaces = 256

// parseNamespaces reads the value of --accept-namespaces: names of namespaces
// and patterns of path.Match, separated by commas. "*" means all. The error names
// the item; a list that cannot be read as a whole is not used at all. An empty list is
// an error, because it could mean none as well as all.
func parseNamespaces(text string) (model.Namespaces, error) {
	const expected = "expected names of namespaces and patterns separated by commas, such as \"shop,team-*\""
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("names no namespace; %s; remedy: give a name, or \"*\" for all", expected)
	}
	items := strings.Split(text, ",")
	if len(items) > maxNamespaces {
		return nil, fmt.Errorf("has %d items; expected at most %d; remedy: use patterns, such as \"team-*\"", len(items), maxNamespaces)
	}
	for i, item := range items {
		items[i] = strings.TrimSpace(item)
		if problem := namespacePatternProblem(items[i]); problem != "" {
			return nil, fmt.Errorf("item %d, %q, %s; %s; remedy: correct that item", i+1, model.Bound(item, 64), problem, expected)
		}
	}
	return items, nil
}

// namespacePatternProblem is what is wrong with one item; empty if nothing is.
func namespacePatternProblem(item string) string {
	switch {
	case item == "":
		return "is empty"
	case strings.Contains(item, "**"):
		return "has \"**\", and \"*\" already matches any name"
	case !strings.ContainsAny(item, `*?[\`):
		if problems := validation.IsDNS1123Label(item); len(problems) > 0 {
			return "is not a valid name of a namespace"
		}
		return ""
	}
	if strings.ContainsFunc(item, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-*?[]^", r) }) {
		return "has a character that is not allowed in names of namespaces"
	}
	if _, err := path.Match(item, ""); err != nil {
		return "is not a valid pattern"
	}
	return ""
}
