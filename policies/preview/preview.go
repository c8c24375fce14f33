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
	// Policy is the one whose matches are counted; empty if several change.
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
	// Counted is true if Matched is how many of those the policy matches.
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

// Changes reports whether anything would be published, withdrawn, imported or decided
// otherwise: a new warning alone is no change.
func (r Report) Changes() bool {
	isChange := func(e Effect) bool { return e.Kind != Warn }
	return slices.ContainsFunc(r.Exports.Effects, isChange) || slices.ContainsFunc(r.Imports.Effects, isChange)
}

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
	return Report{
		Exports: look(ctx, change, v1alpha1.StageExport, exports, func(export *mcsv1beta1.ServiceExport, part *Part) bool {
			return change.export(ctx, source, export, part)
		}),
		Imports: look(ctx, change, v1alpha1.StageImport, imports, func(in decision.ImportInput, part *Part) bool {
			return change.imported(ctx, in, part)
		}),
	}, nil
}

// look gives each of the objects that policies of a stage decide on to one, until ctx
// ends. If no policy of the stage changes, nothing of them does.
func look[T any](ctx context.Context, change Change, stage v1alpha1.Stage, all []T, one func(T, *Part) bool) Part {
	part := Part{Total: len(all), Counted: change.Policy != "" && change.After.Of(change.Policy, stage)}
	if !change.Before.Differs(change.After, stage) {
		part.Looked, part.Counted = part.Total, false
		return part
	}
	for _, object := range all {
		if ctx.Err() != nil || !one(object, &part) {
			break
		}
	}
	return part
}

// export adds to part what the change would do to one export; false if ctx ended, so
// that it is not known.
func (c Change) export(ctx context.Context, source Source, export *mcsv1beta1.ServiceExport, part *Part) bool {
	in, err := source.Input(ctx, export)
	if err != nil {
		if ctx.Err() != nil {
			return false
		}
		part.Looked++
		part.Unread++
		part.Problem = cmp.Or(part.Problem, err.Error())
		return true
	}
	if c.Before.MayDiffer(c.After, in) {
		before, after := c.Before.Evaluate(ctx, in), c.After.Evaluate(ctx, in)
		if ctx.Err() != nil {
			return false
		}
		part.add(Effect{Namespace: export.Namespace, Name: export.Name}, before, after, in.Published, audienceOf(in))
	}
	part.Looked++
	if c.After.Matches(c.Policy, in) {
		part.Matched++
	}
	return true
}

// imported is export for an import from one cluster.
func (c Change) imported(ctx context.Context, in decision.ImportInput, part *Part) bool {
	if c.Before.MayDifferImport(c.After, in) {
		before, after := c.Before.EvaluateImport(ctx, in), c.After.EvaluateImport(ctx, in)
		if ctx.Err() != nil {
			return false
		}
		part.add(Effect{Namespace: in.Export.Namespace, Name: in.Export.Name, Cluster: in.Source.Cluster}, before, after, in.Imported, decision.Audience{})
	}
	part.Looked++
	if c.After.MatchesImport(c.Policy, in) {
		part.Matched++
	}
	return true
}

// add adds the effect on an object, if there is one. stands is true if the object is
// published, or imported.
func (p *Part) add(on Effect, before, after decision.Verdict, stands bool, to decision.Audience) {
	effect, ok := effectOf(before, after, stands, to)
	if !ok {
		return
	}
	effect.Namespace, effect.Name, effect.Cluster = on.Namespace, on.Name, on.Cluster
	p.Effects = append(p.Effects, effect)
}
