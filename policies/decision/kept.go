// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Publication is what is known of an export in the exchange.
type Publication struct {
	// Published is Input.Published.
	Published bool
	// Kept is Input.Kept.
	Kept string
}

// maxKept bounds the violations that a record names. With more, all are kept.
const maxKept, allKept = 64, "*"

// Ratchet denies what `existing: Keep` does not keep: violations that came with a change of the
// Service, which no webhook refuses, or of the export where no webhook was asked. in is what the
// verdict is about, an audit. Verdict.Kept is then for the record of the export:
//
//	both are as the record says   a violation of the record   it is
//	yes                           any                         kept: policies or members changed
//	no                            yes                         kept
//	no                            no                          a denial, and the record stays as it is
//
// Where the record says nothing, all violations are kept.
func (v *Verdict) Ratchet(in Input) {
	if in.Operation != Audit || v.Outcome == NotEvaluated {
		return
	}
	what := []any{in.Object.Spec, in.Object.Labels, in.Object.Annotations} // no webhook may have been asked
	if in.Service != nil {
		what = append(what, in.Service.Spec)
	}
	text, _ := json.Marshal(what) // strings, numbers and maps of strings
	exported := digest(string(text))
	was, list, known := strings.Cut(in.Kept, ":") // digests of what was exported, and of the violations that were kept
	before := strings.Split(list, ",")
	var kept []string
	var added, warnings []Violation
	for _, w := range v.Warnings {
		if w.Softening == ByExisting {
			id := digest(w.Policy, w.Field, w.Message)
			kept = append(kept, id)
			if known && was != exported && !slices.Contains(before, id) && !slices.Contains(before, allKept) {
				w.Softening = NotSoftened
				added = append(added, w)
				continue
			}
		}
		warnings = append(warnings, w)
	}
	if len(added) == 0 {
		slices.Sort(kept)
		if len(kept) > maxKept {
			kept = []string{allKept}
		}
		v.Kept = exported + ":" + strings.Join(slices.Compact(kept), ",")
		return
	}
	v.Warnings, v.Violations = warnings, append(v.Violations, added...)
	slices.SortStableFunc(v.Violations, func(a, b Violation) int { return strings.Compare(a.Policy, b.Policy) })
	v.Outcome, v.Excluded = Denied, nil
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return fmt.Sprintf("%x", sum[:8])
}
