// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxLine is the length in bytes that a warning should have at most: what the API
// server recommends. It is longer only for a single name that does not fit.
const maxLine = 120

// Warnings are lines for the author of a policy, each with the name of the policy. There
// is none if nothing would happen.
func (r Report) Warnings(policy string) []string {
	var lines []string
	add := func(format string, args ...any) {
		lines = append(lines, fmt.Sprintf("[%s] ", policy)+fmt.Sprintf(format, args...))
	}
	for _, part := range []struct {
		Part
		words words
	}{{r.Exports, ofExports}, {r.Imports, ofImports}} {
		for _, group := range groups(part.Effects) {
			add("%s", group.sentence(part.words, part.Looked, maxLine-len(policy)-len("[] ")))
		}
		if part.Total > 0 && part.Counted && part.Matched == 0 && part.Complete() && part.Unread == 0 {
			add(matchesNo+"%s (there are %d)", part.words.noun, part.Total)
		}
		if !part.Complete() {
			add("looked at %d of %d %ss, then the time for a preview was over", part.Looked, part.Total, part.words.noun)
		}
		if part.Unread > 0 {
			add("%d of %d %ss could not be read: %s", part.Unread, part.Looked, part.words.noun, part.Problem)
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

// words are those in which exports and imports differ.
type words struct{ noun, withdraw, absent string }

var (
	ofExports = words{"export", "withdraw", "not published now"}
	ofImports = words{"import", "remove", "not imported now"}
)

// group is effects of one kind, and with one grace period.
type group struct {
	kind  Kind
	grace time.Duration
	items []Effect
}

func groups(effects []Effect) (out []group) {
	for _, effect := range effects {
		at := slices.IndexFunc(out, func(g group) bool { return g.kind == effect.Kind && g.grace == effect.Grace })
		if at < 0 {
			at = len(out)
			out = append(out, group{kind: effect.Kind, grace: effect.Grace})
		}
		out[at].items = append(out[at].items, effect)
	}
	slices.SortFunc(out, func(a, b group) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds(), a.kind), slices.Index(kinds(), b.kind)), cmp.Compare(a.grace, b.grace))
	})
	return out
}

// sentence says what would happen, to how many, and to which first, in size bytes.
func (g group) sentence(words words, looked, size int) string {
	count := fmt.Sprintf("%d of %d %ss", len(g.items), looked, words.noun)
	text := fmt.Sprintf(map[Kind]string{
		Withdraw: would + words.withdraw + " %s",
		Deny:     would + "deny %s, " + words.absent,
		Exclude:  would + "withdraw %s from some clusters",
		Block:    would + "keep policies from being evaluated for %s",
		Allow:    would + "no longer deny %s",
		Include:  would + "publish %s to more clusters",
		Warn:     wouldWarn + "%s",
	}[g.kind], count)
	if g.grace > 0 {
		text += " after " + withoutZero.Replace(g.grace.String())
	}
	return text + ": " + g.names(size-len(text)-len(": "))
}

// names lists as many of the items as fit in size bytes, but one at least.
func (g group) names(size int) string {
	shown := ""
	for i, item := range g.items {
		name := item.Namespace + "/" + item.Name
		if item.Cluster != "" {
			name += " from " + item.Cluster
		}
		if len(item.Clusters) > 0 {
			name += " (" + strings.Join(item.Clusters, ", ") + ")"
		}
		next, more := strings.TrimPrefix(shown+", "+name, ", "), ""
		rest := len(g.items) - i - 1
		if rest > 0 {
			more = fmt.Sprintf(" and %d more", rest)
		}
		if i > 0 && len(next)+len(more) > size {
			return fmt.Sprintf("%s and %d more", shown, rest+1)
		}
		shown = next
	}
	return shown
}

// withoutZero leaves out the units of a duration that are zero: 10m of 10m0s.
var withoutZero = strings.NewReplacer("h0m0s", "h", "m0s", "m")
