// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/comity-mcs/comity/policies/decision"
)

// Warnings are lines for the author of a policy, each with the name of the policy. There
// is none if nothing would happen.
func (r Report) Warnings(policy string) []string {
	var lines []string
	add := func(format string, args ...any) {
		lines = append(lines, fmt.Sprintf("[%s] ", policy)+fmt.Sprintf(format, args...))
	}
	for _, part := range []struct {
		Part
		noun string
	}{{r.Exports, "export"}, {r.Imports, "import"}} {
		for _, alike := range groups(part.Effects) {
			add("%s", sentence(alike, part.noun, part.Looked))
		}
		if part.Total > 0 && part.Counted && part.Matched == 0 && part.Complete() && part.Unread == 0 {
			add(matchesNo+"%s (there are %d)", part.noun, part.Total)
		}
		if !part.Complete() {
			add("looked at %d of %d %ss, then the time for a preview was over", part.Looked, part.Total, part.noun)
		}
		if part.Unread > 0 {
			add("%d of %d %ss could not be read: %s", part.Unread, part.Looked, part.noun, part.Problem)
		}
	}
	return lines
}

// How the lines of Warnings begin that are no change, and that say all that there is.
const (
	would     = "would "
	wouldWarn = "would warn about "
	matchesNo = "matches no "
)

// IsChange reports whether a line of Warnings says that something would be published,
// withdrawn, imported or decided otherwise: a new warning alone is no change.
func IsChange(line string) bool {
	text, is := content(line)
	return is && strings.HasPrefix(text, would) && !strings.HasPrefix(text, wouldWarn)
}

// IsIncomplete reports whether a line of Warnings, or one in place of them, says that not
// everything is known.
func IsIncomplete(line string) bool {
	text, is := content(line)
	return is && !strings.HasPrefix(text, would) && !strings.HasPrefix(text, matchesNo)
}

// content is a line without the name of the policy; false for a warning of somebody else.
func content(line string) (text string, is bool) {
	_, text, is = strings.Cut(line, "] ")
	return text, is && strings.HasPrefix(line, "[")
}

// groups are the effects of one kind, and with one grace period, each.
func groups(effects []Effect) (out [][]Effect) {
	order := func(a, b Effect) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Grace, b.Grace)) }
	for _, effect := range slices.SortedStableFunc(slices.Values(effects), order) {
		if last := len(out) - 1; last >= 0 && order(out[last][0], effect) == 0 {
			out[last] = append(out[last], effect)
		} else {
			out = append(out, []Effect{effect})
		}
	}
	return out
}

// sentence says what would happen, to how many, and to which first.
func sentence(effects []Effect, noun string, looked int) string {
	count := fmt.Sprintf("%d of %d %ss", len(effects), looked, noun)
	text := fmt.Sprintf(map[Kind]string{
		Withdraw: would + "withdraw %s",
		Deny:     would + "deny %s",
		Exclude:  would + "withdraw %s from some clusters",
		Block:    would + "keep policies from being evaluated for %s",
		Allow:    would + "no longer deny %s",
		Include:  would + "publish %s to more clusters",
		Warn:     wouldWarn + "%s",
	}[effects[0].Kind], count)
	if grace := effects[0].Grace; grace > 0 {
		text += " after " + withoutZero.Replace(grace.String())
	}
	var names []string
	for _, effect := range effects {
		names = append(names, effect.object())
	}
	return text + ": " + decision.Some(names, maxNamed)
}

// maxNamed is how many objects a line names: the API server recommends 120 bytes.
const maxNamed = 3

// object names what the effect is on, and its clusters.
func (e Effect) object() string {
	name := e.Namespace + "/" + e.Name
	if e.Cluster != "" {
		name += " from " + e.Cluster
	}
	if len(e.Clusters) > 0 {
		name += " (" + strings.Join(e.Clusters, ", ") + ")"
	}
	return name
}

// withoutZero leaves out the units of a duration that are zero: 10m of 10m0s.
var withoutZero = strings.NewReplacer("h0m0s", "h", "m0s", "m")
