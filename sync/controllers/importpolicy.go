// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// ImportAdmitter evaluates the policies with stage Import.
type ImportAdmitter interface {
	// AdmitImports gives a verdict for each source cluster of one import. What is
	// remembered of clusters that are not among them is dropped.
	AdmitImports(ctx context.Context, key types.NamespacedName, from []decision.ImportInput) map[model.ClusterID]decision.Verdict
}

// ImportFindings learn what import policies find, for the status of the ExportPolicies.
type ImportFindings interface {
	// Record replaces what is known of the import of key from a cluster.
	Record(key types.NamespacedName, cluster string, verdict decision.Verdict)
	// ForgetImports drops what is known of imports of key from other clusters.
	ForgetImports(key types.NamespacedName, except ...string)
}

// ImportPolicyCacheOptions configure an ImportPolicyCache; all are required.
type ImportPolicyCacheOptions struct {
	// Evaluate must read nothing but its input.
	Evaluate func(context.Context, decision.ImportInput) decision.Verdict
	// Active reports whether Evaluate may give anything but Allowed without a warning.
	Active func() bool
	// Policies names the set of policies in use, as a Verdict does in its Digest;
	// empty while there is none.
	Policies func() string
	// Findings learn each verdict.
	Findings ImportFindings
}

// ImportPolicyCache is an ImportAdmitter that remembers each answer as long as nothing
// changes that it depends on: the policies, the Namespace, the labels of the source
// cluster, and what the export is, but not its endpoints. It never keeps an answer
// that was not reached. All methods may be called from any goroutine.
type ImportPolicyCache struct {
	verdictCache

	opts ImportPolicyCacheOptions
}

// NewImportPolicyCache returns an ImportPolicyCache that remembers nothing.
func NewImportPolicyCache(opts ImportPolicyCacheOptions) *ImportPolicyCache {
	return &ImportPolicyCache{opts: opts}
}

// AdmitImports implements ImportAdmitter.
func (c *ImportPolicyCache) AdmitImports(ctx context.Context, key types.NamespacedName, from []decision.ImportInput) map[model.ClusterID]decision.Verdict {
	out := make(map[model.ClusterID]decision.Verdict, len(from))
	var sources []string
	isActive := c.opts.Active()
	for i := range from {
		cluster, verdict := from[i].Source.Cluster, decision.Verdict{Outcome: decision.Allowed}
		if isActive {
			sources, verdict = append(sources, cluster), c.admit(ctx, key, from[i])
		}
		out[model.ClusterID(cluster)] = verdict
	}
	c.forget(key, sources...)
	c.opts.Findings.ForgetImports(key, sources...)
	return out
}

// admit is the answer for one source.
func (c *ImportPolicyCache) admit(ctx context.Context, key types.NamespacedName, in decision.ImportInput) decision.Verdict {
	policies := c.opts.Policies()
	inputs := importInputs(policies, in)
	if verdict, has := c.find(key, in.Source.Cluster, inputs); has {
		return verdict
	}
	verdict := c.opts.Evaluate(ctx, in)
	c.opts.Findings.Record(key, in.Source.Cluster, verdict)
	c.keep(key, in.Source.Cluster, inputs, policies, verdict)
	return verdict
}

// importInputs are everything that an answer depends on. They are not known if there are no
// policies yet or the Namespace was never stored, which is named by its version.
func importInputs(policies string, in decision.ImportInput) verdictInputs {
	namespace := in.Namespace
	if policies == "" || namespace == nil || namespace.UID == "" || namespace.ResourceVersion == "" {
		return verdictInputs{}
	}
	in.Namespace = nil
	return inputsOf(policies, namespace.UID, namespace.ResourceVersion, in, in.Imported, in.Unread, in.Source.Unknown)
}
