// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"time"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// dateLayout is how an exception writes its last day.
const dateLayout = time.DateOnly

// FromObject is an ExportPolicy as the engine takes it at a time: with the exceptions
// that are in force then.
func FromObject(object *v1alpha1.ExportPolicy, now time.Time) Policy {
	spec := &object.Spec
	p := Policy{
		Name:        object.Name,
		Module:      spec.Rego,
		Stage:       spec.Stage,
		Enforcement: spec.Enforcement,
		Existing:    spec.Existing,
		Match:       spec.Match,
		// Those that are over are left out, so that a policy is loaded again when one ends.
		Exceptions: slices.DeleteFunc(slices.Clone(spec.Exceptions), func(e v1alpha1.Exception) bool { return IsOver(e, now) }),
	}
	if spec.Parameters != nil {
		p.Params = spec.Parameters.Raw
	}
	if spec.ParametersSchema != nil {
		p.ParametersSchema = spec.ParametersSchema.Raw
	}
	if spec.Grace != nil {
		p.Grace = spec.Grace.Duration
	}
	return p
}

// IsOver reports whether the last day of an exception has passed. One whose date
// cannot be read is not over: the policy is refused because of it.
func IsOver(e v1alpha1.Exception, now time.Time) bool {
	end, ok := EndOf(e)
	return ok && !now.Before(end)
}

// EndOf is the end of the last day of an exception, in UTC; false if its date cannot
// be read.
func EndOf(e v1alpha1.Exception) (time.Time, bool) {
	day, err := time.Parse(dateLayout, e.Until)
	return day.AddDate(0, 0, 1), err == nil
}
