// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"slices"

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
