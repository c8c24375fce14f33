// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package preview finds out what other policies would do to what is stored.
//
// It takes a change of the policies in use and a Source of stored objects; it gives a Report of what would be withdrawn, denied or allowed. It
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

// Source has what is stored; facts.Reader is one.
type Source interface {
	// Exports lists the ServiceExports of this cluster, in any order.
	Exports(ctx context.Context) ([]mcsv1beta1.ServiceExport, error)
	// Input is what an audit of one of them, the Object, is evaluated with.
	Input(ctx context.Context, audit decision.Input) (decision.Input, error)
	// Imports lists what this cluster imports, or may import, from each other cluster,
	// in any order.
	Imports(ctx context.Context) ([]decision.ImportInput, error)
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
func Run(ctx context.Context, change engine.Change, source Source) (Report, error) {
	exports, err := source.Exports(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("list the ServiceExports: %w", err)
	}
	exports = slices.DeleteFunc(exports, func(e mcsv1beta1.ServiceExport) bool { return e.DeletionTimestamp != nil })
	slices.SortFunc(exports, func(a, b mcsv1beta1.ServiceExport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	imports, err := source.Imports(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("list the imports: %w", err)
	}
	slices.SortFunc(imports, func(a, b decision.ImportInput) int {
		return cmp.Or(cmp.Compare(a.Export.Namespace, b.Export.Namespace), cmp.Compare(a.Export.Name, b.Export.Name), cmp.Compare(a.Source.Cluster, b.Source.Cluster))
	})
	writer := engine.NewWriter()
	return Report{
		Exports: run(ctx, change, v1alpha1.StageExport, len(exports), func(i int) (on *engine.Subject, to decision.Audience, _ error) {
			in, err := source.Input(ctx, decision.Input{Object: &exports[i]})
			if err == nil {
				on, err = writer.Export(in)
			}
			return on, audienceOf(in), err
		}),
		Imports: run(ctx, change, v1alpha1.StageImport, len(imports), func(i int) (on *engine.Subject, to decision.Audience, err error) {
			on, err = writer.Import(imports[i])
			return on, to, err
		}),
	}, nil
}

// run looks at each object of a stage, until ctx ends. If no policy of the stage changes, nothing
// of them does, and they need not be looked at.
func run(ctx context.Context, change engine.Change, stage v1alpha1.Stage, total int, read func(i int) (*engine.Subject, decision.Audience, error)) (p Part) {
	if !change.Stages[stage][0] {
		return Part{Total: total, Looked: total}
	}
	p = Part{Total: total, Counted: change.Stages[stage][1]}
	for p.Looked < total && ctx.Err() == nil {
		on, to, err := read(p.Looked)
		var found engine.Comparison
		if err == nil {
			found, err = change.Compare(ctx, on)
		}
		if ctx.Err() != nil {
			break // what was read or decided last may be incomplete
		}
		p.Looked++
		if err != nil {
			p.Unread++
			p.Problem = cmp.Or(p.Problem, err.Error())
			continue
		}
		if found.Matches {
			p.Matched++
		}
		if effect, ok := effectOf(found.Before, found.After, on.Stands != decision.NotSoftened, to); ok {
			effect.Namespace, effect.Name, effect.Cluster = on.Namespace, on.Name, on.Cluster
			p.Effects = append(p.Effects, effect)
		}
	}
	return p
}
