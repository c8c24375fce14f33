// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
)

// verdictInputs are a digest of everything that a verdict depends on; the zero value if that
// is not known.
type verdictInputs [sha256.Size]byte

// inputsOf is the digest of values that JSON can express.
func inputsOf(values ...any) verdictInputs {
	text, err := json.Marshal(values)
	if err != nil {
		panic(fmt.Sprintf("controllers: write the inputs of a policy as JSON: %v", err)) // strings, numbers and maps of strings
	}
	return sha256.Sum256(text)
}

// verdictCache remembers verdicts by key and source cluster, which is empty for an export of
// this cluster. All methods may be called from any goroutine.
type verdictCache struct {
	mu   sync.Mutex
	kept map[types.NamespacedName]map[string]keptVerdict
}

type keptVerdict struct {
	inputs  verdictInputs
	verdict decision.Verdict
}

// find is the verdict that was reached with the same inputs.
func (c *verdictCache) find(key types.NamespacedName, cluster string, inputs verdictInputs) (decision.Verdict, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, has := c.kept[key][cluster]
	return kept.verdict, has && kept.inputs == inputs
}

// keep remembers a verdict, unless its inputs are not known, or it was not reached, or with
// another set of policies.
func (c *verdictCache) keep(key types.NamespacedName, cluster string, inputs verdictInputs, policies string, verdict decision.Verdict) {
	reached := verdict.Outcome == decision.Allowed || verdict.Outcome == decision.Denied
	if inputs == (verdictInputs{}) || !reached || verdict.Digest != policies {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[types.NamespacedName]map[string]keptVerdict{}
	}
	if c.kept[key] == nil {
		c.kept[key] = map[string]keptVerdict{}
	}
	c.kept[key][cluster] = keptVerdict{inputs, verdict}
}

// forget drops what is remembered of key, but that of some clusters.
func (c *verdictCache) forget(key types.NamespacedName, but ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.kept[key], func(cluster string, _ keptVerdict) bool { return !slices.Contains(but, cluster) })
	if len(c.kept[key]) == 0 {
		delete(c.kept, key)
	}
}
