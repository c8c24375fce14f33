// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package violation is the form in which commands print violations of policies.
//
// It takes the violations, or warnings, of a verdict and gives one Violation for each, in
// their order, which -o json and -o yaml print as it is. It evaluates and prints nothing.
package violation

import "github.com/comity-mcs/comity/policies/decision"

// Violation is one objection of a policy.
type Violation struct {
	Policy   string   `json:"policy"`
	Reason   string   `json:"reason,omitempty"`
	Field    string   `json:"field,omitempty"`
	Message  string   `json:"message"`
	Remedy   string   `json:"remedy,omitempty"`
	Clusters []string `json:"clusters,omitempty"`
	// Text is all of it, as users see it.
	Text string `json:"text"`
}

// Of are the violations of a verdict.
func Of(given []decision.Violation) (all []Violation) {
	for _, v := range given {
		all = append(all, Violation{
			Policy: v.Policy, Reason: v.Reason, Field: v.Field, Message: v.Message, Remedy: v.Remedy, Clusters: v.Clusters, Text: v.String(),
		})
	}
	return all
}
