// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"strings"

	"github.com/comity-mcs/comity/sync/model"
)

// maxListed is how many clusters a message names before it only counts.
const maxListed = 10

// clusterList is "cluster b", "clusters b, c", or "clusters b, … and 90 more".
func clusterList[ID ~string](ids []ID) string {
	if len(ids) == 1 {
		return "cluster " + string(ids[0])
	}
	names := make([]string, 0, maxListed)
	for _, id := range ids[:min(maxListed, len(ids))] {
		names = append(names, string(id))
	}
	list := "clusters " + strings.Join(names, ", ")
	if len(ids) > maxListed {
		list += fmt.Sprintf(" and %d more", len(ids)-maxListed)
	}
	return list
}

// troubles lists problems behind intro; empty if there are none.
func troubles(intro string, problems []model.Problem) string {
	if len(problems) == 0 {
		return ""
	}
	texts := make([]string, len(problems))
	for i, problem := range problems {
		texts[i] = problem.Reason + ": " + problem.Message
	}
	return intro + strings.Join(texts, "; ")
}

func either(text, otherwise string) string {
	if text != "" {
		return text
	}
	return otherwise
}
