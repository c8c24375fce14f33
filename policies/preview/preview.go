// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package preview finds out what other policies would do to what is stored.
//
// It takes two engines, with the policies before and after a change, and a Source of
// stored objects; it gives a Report of what would be withdrawn, denied or allowed. It
// evaluates each object as the agent would after the change (an audit), so that what
// it predicts is what then happens, if nothing else changes meanwhile. It reads only
// by way of the Source, writes nothing and knows no clock.
package preview

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Source has what is stored.
type Source interface {
	// Exports lists the ServiceExports of this cluster, in any order.
	Exports(ctx context.Context) ([]*mcsv1beta1.ServiceExport, error)
	// Input is what an audit of one of them is evaluated with.
	Input(ctx context.Context, export *mcsv1beta1.ServiceExport) (decision.Input, error)
	// Imports lists what this cluster imports, or may import, from each other cluster,
	// in any order.
	Imports(ctx context.Context) ([]decision.ImportInput, error)
}

// Change is a change of the policies in use.
type Change struct {
	// Before and After have the policies before and after it. No one else should use
	// them meanwhile; see engine.Copy and engine.With.
	Before, After *engine.Engine
	// Policy is the one that changes.
	Policy string
}

// Report is what a change would do.
type Report struct {
	// Exports are those of this cluster, Imports those of other clusters, one for each
	// source cluster.
	Exports, Imports Part
}

// Part is what a change would do to objects of one kind.
type Part struct {
	// Total is how many there are. Looked is how many of them were looked at, first by
	// namespace and name: fewer, if the time was over.
	Total, Looked int
	// Counted is true if the policy may match those at all, and Matched how many it does.
	Counted bool
	Matched int
	// Unread is how many of those could not be read, so that it is not known what would
	// become of them. Problem says why of the first.
	Unread  int
	Problem string
	// Effects are those that there are, sorted by namespace and name.
	Effects []Effect
}

// Complete reports whether all objects were evaluated.
func (p Part) Complete() bool { return p.Looked == p.Total }

// Run looks at each object until ctx ends, which is no error. The error says why the
// objects could not be listed.
func Run(ctx context.Context, change Change, source Source) (Report, error) {
	exports, err := source.Exports(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("list the ServiceExports: %w", err)
	}
	exports = slices.DeleteFunc(exports, func(e *mcsv1beta1.ServiceExport) bool { return e.DeletionTimestamp != nil })
	slices.SortFunc(exports, func(a, b *mcsv1beta1.ServiceExport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	imports, err := source.Imports(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("list the imports: %w", err)
	}
	slices.SortFunc(imports, func(a, b decision.ImportInput) int {
		return cmp.Or(cmp.Compare(a.Export.Namespace, b.Export.Namespace), cmp.Compare(a.Export.Name, b.Export.Name), cmp.Compare(a.Source.Cluster, b.Source.Cluster))
	})
	report := Report{Exports: newPart(change, v1alpha1.StageExport, len(exports)), Imports: newPart(change, v1alpha1.StageImport, len(imports))}
	for _, export := range exports[report.Exports.Looked:] {
		in, err := source.Input(ctx, export)
		switch {
		case ctx.Err() != nil:
			return report, nil //nolint:nilerr // the time is over: the report says how much was looked at
		case err != nil:
			report.Exports.Looked++
			report.Exports.Unread++
			report.Exports.Problem = cmp.Or(report.Exports.Problem, err.Error())
			continue
		}
		on := Effect{Namespace: export.Namespace, Name: export.Name}
		if !report.Exports.look(ctx, change, engine.Export(in), on, in.Published, audienceOf(in)) {
			return report, nil
		}
	}
	for _, in := range imports[report.Imports.Looked:] {
		on := Effect{Namespace: in.Export.Namespace, Name: in.Export.Name, Cluster: in.Source.Cluster}
		if !report.Imports.look(ctx, change, engine.Import(in), on, in.Imported, decision.Audience{}) {
			return report, nil
		}
	}
	return report, nil
}

// newPart has objects of a stage. If no policy of the stage changes, nothing of them does,
// and they need not be looked at.
func newPart(change Change, stage v1alpha1.Stage, total int) Part {
	if !change.Before.Differs(change.After, stage) {
		return Part{Total: total, Looked: total}
	}
	return Part{Total: total, Counted: change.After.Of(change.Policy, stage)}
}

// look adds what the change would do to an object that stands, which is published or
// imported, or does not; false if ctx ended, so that it is not known.
func (p *Part) look(ctx context.Context, change Change, subject engine.Subject, on Effect, stands bool, to decision.Audience) bool {
	if change.Before.MayDiffer(change.After, subject) {
		before, after := change.Before.Decide(ctx, subject), change.After.Decide(ctx, subject)
		if ctx.Err() != nil {
			return false
		}
		if effect, ok := effectOf(before, after, stands, to); ok {
			effect.Namespace, effect.Name, effect.Cluster = on.Namespace, on.Name, on.Cluster
			p.Effects = append(p.Effects, effect)
		}
	}
	p.Looked++
	if change.After.Matches(change.Policy, subject) {
		p.Matched++
	}
	return ctx.Err() == nil
}
