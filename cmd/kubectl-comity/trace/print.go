// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
)

// Grey text of a terminal, and its end.
const (
	grey  = "\033[2m"
	plain = "\033[0m"
)

// printer shows a report as a tree.
type printer struct {
	out io.Writer
	// raw takes the codes that only a terminal understands.
	raw io.Writer
	now time.Time
}

func (p printer) print(r Report) {
	p.line("Service %s/%s\n", r.Namespace, r.Name)
	for _, e := range r.Exports {
		p.line("\nfrom cluster %s\n", e.Cluster)
		p.steps("", e.Steps, len(e.Ways) == 0)
		for i, w := range e.Ways {
			branch, indent := "├─ ", "│  "
			if i == len(e.Ways)-1 {
				branch, indent = "└─ ", "   "
			}
			p.line("%sto cluster %s\n", branch, w.To)
			p.steps(indent, w.Steps, true)
		}
	}
	if len(r.Pods) > 0 {
		p.line("\nThe last steps were tried from %s, which runs Comity's image in Comity's namespace.\nA NetworkPolicy may treat other clients differently.\n", strings.Join(r.Pods, ", "))
	}
	for _, left := range r.LeftBehind {
		p.line("\nLEFT BEHIND: %s\n", left)
	}
	p.conclusion(r)
}

func (p printer) conclusion(r Report) {
	switch {
	case r.Cause == nil:
		p.line("\nNo step is broken.\n")
		return
	case r.Broken:
		p.line("\nThe first broken step")
	default:
		p.line("\nNo step is broken. The first warning")
	}
	p.line(" is %s in %s: %s%s\n", r.Cause.Check, r.Cause.Cluster, reason(*r.Cause), r.Cause.Message)
	p.remedy("  ", *r.Cause)
}

func (p printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format, args...) }

var marks = map[finding.Severity]string{finding.OK: "ok", finding.Error: "BROKEN", finding.Warning: "warning", finding.NotRead: "not read"}

// steps prints branches; the last one ends the tree if isLast is true.
func (p printer) steps(indent string, steps []Step, isLast bool) {
	for i, s := range steps {
		branch, next := "├─ ", "│  "
		if isLast && i == len(steps)-1 {
			branch, next = "└─ ", "   "
		}
		mark := marks[s.Severity]
		if s.Follows {
			mark = "follows"
			_, _ = io.WriteString(p.raw, grey)
		}
		since := ""
		if s.Since != nil {
			since = " (for " + duration.HumanDuration(p.now.Sub(s.Since.Time)) + ")"
		}
		inside := indent + next + "          "
		p.line("%s%s%-8s  %s: %s%s%s\n", indent, branch, mark, s.Check, reason(s), strings.ReplaceAll(s.Message, "\n", "\n"+inside), since)
		if s.Follows {
			_, _ = io.WriteString(p.raw, plain)
		} else if s.Severity != finding.OK {
			p.remedy(inside, s)
		}
	}
}

// reason is the reason of a step that is not as it should be.
func reason(s Step) string {
	if s.Reason == "" || s.Severity == finding.OK {
		return ""
	}
	return s.Reason + ": "
}

func (p printer) remedy(indent string, s Step) {
	if s.Fix != "" {
		p.line("%sfix:  %s\n", indent, s.Fix)
	}
	if s.Docs != "" {
		p.line("%sdocs: %s\n", indent, s.Docs)
	}
}
