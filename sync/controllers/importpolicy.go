// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

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

// ImportPolicyCacheOptions configure an ImportPolicyCache; Findings may be nil, the
// others are required.
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
	opts ImportPolicyCacheOptions

	mu   sync.Mutex
	kept map[types.NamespacedName]map[model.ClusterID]importAnswer
}

type importAnswer struct {
	inputs  [sha256.Size]byte
	verdict *decision.Verdict
}

// NewImportPolicyCache returns an ImportPolicyCache that remembers nothing.
func NewImportPolicyCache(opts ImportPolicyCacheOptions) *ImportPolicyCache {
	return &ImportPolicyCache{opts: opts, kept: map[types.NamespacedName]map[model.ClusterID]importAnswer{}}
}

// AdmitImports implements ImportAdmitter.
func (c *ImportPolicyCache) AdmitImports(ctx context.Context, key types.NamespacedName, from []decision.ImportInput) map[model.ClusterID]decision.Verdict {
	out := make(map[model.ClusterID]decision.Verdict, len(from))
	if !c.opts.Active() {
		for i := range from {
			out[model.ClusterID(from[i].Source.Cluster)] = decision.Verdict{Outcome: decision.Allowed}
		}
		c.keep(key, nil)
		c.forget(key, nil)
		return out
	}
	c.mu.Lock()
	before := c.kept[key]
	c.mu.Unlock()
	now := make(map[model.ClusterID]importAnswer, len(from))
	for i := range from {
		id := model.ClusterID(from[i].Source.Cluster)
		answer, keep := c.admit(ctx, key, from[i], before[id])
		if out[id] = *answer.verdict; keep {
			now[id] = answer
		}
	}
	c.keep(key, now)
	c.forget(key, from)
	return out
}

func (c *ImportPolicyCache) keep(key types.NamespacedName, now map[model.ClusterID]importAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(now) == 0 {
		delete(c.kept, key)
		return
	}
	c.kept[key] = now
}

// forget drops what was found of other sources than these.
func (c *ImportPolicyCache) forget(key types.NamespacedName, but []decision.ImportInput) {
	if c.opts.Findings == nil {
		return
	}
	sources := make([]string, len(but))
	for i := range but {
		sources[i] = but[i].Source.Cluster
	}
	c.opts.Findings.ForgetImports(key, sources...)
}

// admit is the answer for one source, and whether to keep it.
func (c *ImportPolicyCache) admit(ctx context.Context, key types.NamespacedName, in decision.ImportInput, before importAnswer) (importAnswer, bool) {
	policies := c.opts.Policies()
	inputs, known := importInputs(policies, in)
	if known && before.verdict != nil && before.inputs == inputs {
		return before, true
	}
	verdict := c.opts.Evaluate(ctx, in)
	if c.opts.Findings != nil {
		c.opts.Findings.Record(key, in.Source.Cluster, verdict)
	}
	reached := verdict.Outcome == decision.Allowed || verdict.Outcome == decision.Denied
	return importAnswer{inputs, &verdict}, known && reached && verdict.Digest == policies
}

// importInputs is a digest of everything that an answer depends on; false if it cannot
// be made, because there are no policies yet or the Namespace was never stored. The
// Namespace is named by its version.
func importInputs(policies string, in decision.ImportInput) ([sha256.Size]byte, bool) {
	namespace := in.Namespace
	if policies == "" || namespace == nil || namespace.UID == "" || namespace.ResourceVersion == "" {
		return [sha256.Size]byte{}, false
	}
	in.Namespace = nil
	text, err := json.Marshal([]any{
		policies, namespace.UID, namespace.ResourceVersion, in, in.Imported, in.Unread, in.Source.Unknown,
	})
	if err != nil {
		panic(fmt.Sprintf("controllers: write the input of an import policy as JSON: %v", err)) // strings, numbers and maps of strings
	}
	return sha256.Sum256(text), true
}
