// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// maxListed is how many clusters a message names before it only counts.
const maxListed = 10

// maxNamed is how many it names of those that share a problem.
const maxNamed = 3

// counted says for which of so many clusters something holds: for ids of all, for the only
// one, or for every one. part and every are formats with these numbers.
func counted(ids []model.ClusterID, all int, part, one, every string) string {
	switch {
	case len(ids) < all:
		return fmt.Sprintf(part, len(ids), all)
	case all == 1:
		return one + ": " + string(ids[0])
	case all > maxListed:
		return fmt.Sprintf(every, all)
	}
	return fmt.Sprintf(every, all) + ": " + decision.Some(ids, maxListed)
}

// part is one clause of a message, about so many clusters or violations.
type part struct {
	text  string
	about int
}

// fit joins head and parts as long as they fit into a message, and counts the
// clusters or violations of the parts that do not. The first part is cut rather than left out.
func fit(head string, parts []part) string {
	const reserve = len("; and 10000 more")
	text := head
	for i, p := range parts {
		next := p.text
		if text != "" {
			next = "; " + next
		}
		room := condition.MaxMessage - len(text)
		if i < len(parts)-1 {
			room -= reserve
		}
		if len(next) <= room {
			text += next
			continue
		}
		if i == 0 {
			text += model.Bound(next, room)
			i++
		}
		left := 0
		for _, p := range parts[i:] {
			left += p.about
		}
		if left > 0 {
			text += fmt.Sprintf("; and %d more", left)
		}
		return text
	}
	return text
}

// troubles lists problems after intro, sorted, as "NameTaken: message" or "AddressOverlap in
// b: message"; empty if there are none.
func troubles(intro string, problems []model.Problem) string {
	if len(problems) == 0 {
		return ""
	}
	texts := make([]string, len(problems))
	for i, problem := range ranked(problems) {
		texts[i] = problem.Reason
		if problem.Cluster != "" {
			texts[i] += " in " + string(problem.Cluster)
		}
		texts[i] += ": " + plain(problem.Message)
	}
	return intro + strings.Join(texts, "; ")
}

// ranked sorts problems: first those that a user can correct, then by cluster.
func ranked(problems []model.Problem) []model.Problem {
	return slices.SortedStableFunc(slices.Values(problems), func(a, b model.Problem) int {
		return cmp.Or(
			cmp.Compare(condition.ProblemRank(a.Reason), condition.ProblemRank(b.Reason)),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Message, b.Message),
		)
	})
}

// plain is text of another cluster, safe to show.
func plain(text string) string { return model.OneLine(text, condition.MaxMessage) }

// moment is how messages write a time.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }
