// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/model"
)

// Report is what -o prints, under kind ServiceTrace.
type Report struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Broken is true if a step is.
	Broken bool `json:"broken"`
	// Cause is the first broken step, or else the first one with a warning.
	Cause   *Step    `json:"cause,omitempty"`
	Exports []Export `json:"exports"`
	// Pods are those from which the last steps were tried.
	Pods []string `json:"pods,omitempty"`
	// LeftBehind names what could not be removed.
	LeftBehind []string `json:"leftBehind,omitempty"`
}

// Export is the Service of one cluster that exports it.
type Export struct {
	Cluster model.ClusterID `json:"cluster"`
	Steps   []Step          `json:"steps"`
	Ways    []Way           `json:"ways"`
}

// Way leads from an export to another cluster.
type Way struct {
	To    model.ClusterID `json:"to"`
	Steps []Step          `json:"steps"`

	hop hop
}

// Step is one step.
type Step struct {
	finding.Finding
	// Follows is true if a step before it is broken.
	Follows bool `json:"follows,omitempty"`
}

func isBroken(steps []Step) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return s.Severity == finding.Error })
}

// conclude marks what follows from broken steps, and finds the cause.
func (r *Report) conclude() {
	var broken, warned *Step
	mark := func(steps []Step, follows bool) bool {
		for i := range steps {
			s := &steps[i]
			if s.Follows = follows; s.Severity == finding.Error {
				broken, follows = cmp.Or(broken, s), true
			} else if s.Severity == finding.Warning {
				warned = cmp.Or(warned, s)
			}
		}
		return follows
	}
	for _, e := range r.Exports {
		follows := mark(e.Steps, false)
		for _, w := range e.Ways {
			mark(w.Steps, follows)
		}
	}
	r.Broken, r.Cause = broken != nil, cmp.Or(broken, warned)
}

// printer shows a report as a tree.
type printer struct {
	out io.Writer
	now time.Time
}

func (p printer) print(r Report) {
	p.line("Service %s/%s\n", r.Namespace, r.Name)
	for _, e := range r.Exports {
		p.line("\nfrom cluster %s\n", e.Cluster)
		p.steps("", e.Steps, len(e.Ways) == 0)
		for i, w := range e.Ways {
			branch, indent := branch(i == len(e.Ways)-1)
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
	switch {
	case r.Cause == nil:
		p.line("\nNo step is broken.\n")
	case r.Broken:
		p.line("\nThe first broken step is %s", r.Cause)
	default:
		p.line("\nNo step is broken. The first warning is %s", r.Cause)
	}
}

func (p printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format, args...) }

// branch is a branch of the tree, and how the lines below it begin.
func branch(isLast bool) (text, indent string) {
	if isLast {
		return "└─ ", "   "
	}
	return "├─ ", "│  "
}

var marks = map[finding.Severity]string{finding.OK: "ok", finding.Error: "BROKEN", finding.Warning: "warning", finding.NotRead: "not read"}

// steps prints branches; the last one ends the tree if isLast is true.
func (p printer) steps(indent string, steps []Step, isLast bool) {
	for i, s := range steps {
		branch, next := branch(isLast && i == len(steps)-1)
		mark := marks[s.Severity]
		if s.Follows {
			mark = "follows"
		}
		inside := indent + next + "          "
		p.line("%s%s%-8s  %s: %s", indent, branch, mark, s.Check, strings.ReplaceAll(s.text(), "\n", "\n"+inside))
		if s.Since != nil {
			p.line(" (for %s)", duration.HumanDuration(p.now.Sub(s.Since.Time)))
		}
		p.line("\n")
		if !s.Follows && s.Severity != finding.OK {
			p.line("%s", s.remedy(inside))
		}
	}
}

// text is the reason of a step that is not as it should be, and what was found.
func (s Step) text() string {
	if s.Reason == "" {
		return s.Message
	}
	return s.Reason + ": " + s.Message
}

// String names the step and where it is, what was found, and in lines of their own what fixes it.
func (s Step) String() string {
	return s.Check + " in " + s.Cluster + ": " + s.text() + "\n" + s.remedy("  ")
}

func (s Step) remedy(indent string) (lines string) {
	if s.Fix != "" {
		lines = indent + "fix:  " + s.Fix + "\n"
	}
	if s.Docs != "" {
		lines += indent + "docs: " + s.Docs + "\n"
	}
	return lines
}
