// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package findings counts, for each ExportPolicy, how many exports and imports it
// matches, and which of them violate it.
//
// It takes the verdicts of audits as they are reached, and gives what the status of an
// ExportPolicy shows. It keeps the last verdict on each object in memory, as far as
// policies match it. It evaluates nothing, and reads and writes no cluster.
package findings

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
)

// MaxItems is how many violations a Summary lists.
const MaxItems = 20

// Item is one export or import that violates a policy.
type Item struct {
	Key types.NamespacedName
	// Cluster is the source cluster of an import; empty for an export.
	Cluster string
	// Message is the first violation, without the name of the policy.
	Message string
}

// Summary is what is known of one policy.
type Summary struct {
	// Matched is how many exports and imports the policy matches, Violations how many
	// of them violate it.
	Matched, Violations int
	// Items are the first MaxItems of those that violate it, sorted by namespace, name
	// and cluster.
	Items []Item
}

// Findings hold the last verdict on each export and import. The zero value is not
// usable; see New. All methods may be called from any goroutine.
type Findings struct {
	// changed holds one element after a change.
	changed chan struct{}

	mu       sync.Mutex
	subjects map[types.NamespacedName]map[string]finding // by source cluster
	policies map[string]*policy
}

// subject is an export, or an import from one cluster.
type subject struct {
	key     types.NamespacedName
	cluster string
}

// finding is the part of a verdict that counts.
type finding struct {
	digest   string
	matched  []string
	violated map[string]string // messages by policy
}

type policy struct {
	matched  int
	violated map[subject]string
}

// New returns Findings of nothing.
func New() *Findings {
	return &Findings{changed: make(chan struct{}, 1), subjects: map[types.NamespacedName]map[string]finding{}, policies: map[string]*policy{}}
}

// Record replaces what is known of the export key or, with a cluster, of the import
// of key from it. Only verdicts of audits may be recorded. What an exception excepts
// is no violation; what enforcement or spec.existing soften is.
//
// A verdict that was not reached has no violations, so those that are known stay.
func (f *Findings) Record(key types.NamespacedName, cluster string, verdict decision.Verdict) {
	now := finding{digest: verdict.Digest, matched: verdict.Matched, violated: violated(verdict)}
	f.mu.Lock()
	defer f.mu.Unlock()
	of := subject{key, cluster}
	if verdict.Outcome == decision.NotEvaluated {
		before, known := f.subjects[key][cluster]
		if verdict.Digest == "" && known {
			return // no policy was asked
		}
		now.violated = still(before.violated, now.matched)
	}
	f.replace(of, now)
}

// Forget drops what is known of the export key, which is gone.
func (f *Findings) Forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(subject{key: key})
}

// ForgetImports drops what is known of the imports of key, but for those from the
// clusters that are named.
func (f *Findings) ForgetImports(key types.NamespacedName, except ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for cluster := range f.subjects[key] {
		if cluster != "" && !slices.Contains(except, cluster) {
			f.remove(subject{key, cluster})
		}
	}
}

// Changed receives after a change; changes that nobody received yet count as one.
func (f *Findings) Changed() <-chan struct{} { return f.changed }

// Of is what is known of a policy, by the name of the ExportPolicy.
func (f *Findings) Of(name string) Summary {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.policies[name]
	if p == nil {
		return Summary{}
	}
	items := make([]Item, 0, len(p.violated))
	for of, message := range p.violated {
		items = append(items, Item{Key: of.key, Cluster: of.cluster, Message: message})
	}
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	return Summary{Matched: p.matched, Violations: len(items), Items: slices.Clone(items[:min(len(items), MaxItems)])}
}

// Retain drops the exports that do not exist, and reports whether every one that does
// was reviewed with the policies of this digest.
func (f *Findings) Retain(exports []types.NamespacedName, digest string) (complete bool) {
	exist := make(map[types.NamespacedName]bool, len(exports))
	for _, key := range exports {
		exist[key] = true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	reviewed := 0
	for key, of := range f.subjects {
		found, known := of[""]
		switch {
		case !known:
		case !exist[key]:
			f.remove(subject{key: key})
		case found.digest == digest:
			reviewed++
		}
	}
	return reviewed == len(exist)
}

func (f *Findings) remove(of subject) {
	if _, known := f.subjects[of.key][of.cluster]; !known {
		return
	}
	f.replace(of, finding{})
	delete(f.subjects[of.key], of.cluster)
	if len(f.subjects[of.key]) == 0 {
		delete(f.subjects, of.key)
	}
}

func (f *Findings) replace(of subject, now finding) {
	before, known := f.subjects[of.key][of.cluster]
	if f.subjects[of.key] == nil {
		f.subjects[of.key] = map[string]finding{}
	}
	f.subjects[of.key][of.cluster] = now
	if known && before.digest == now.digest && slices.Equal(before.matched, now.matched) && maps.Equal(before.violated, now.violated) {
		return
	}
	f.count(before.matched, -1)
	f.count(now.matched, +1)
	for name := range before.violated {
		delete(f.policy(name).violated, of)
	}
	for name, message := range now.violated {
		f.policy(name).violated[of] = message
	}
	for _, name := range slices.Concat(before.matched, slices.Collect(maps.Keys(before.violated))) {
		if p := f.policies[name]; p != nil && p.matched == 0 && len(p.violated) == 0 {
			delete(f.policies, name)
		}
	}
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *Findings) count(names []string, by int) {
	for _, name := range names {
		f.policy(name).matched += by
	}
}

func (f *Findings) policy(name string) *policy {
	p := f.policies[name]
	if p == nil {
		p = &policy{violated: map[subject]string{}}
		f.policies[name] = p
	}
	return p
}

// violated are the messages of the first violation of each policy: verdicts are
// sorted. A denial that enforcement or spec.existing soften is a violation, too.
func violated(verdict decision.Verdict) map[string]string {
	var messages map[string]string // most have none
	add := func(v decision.Violation) {
		if messages == nil {
			messages = map[string]string{}
		}
		if _, has := messages[v.Policy]; !has {
			messages[v.Policy] = v.Description()
		}
	}
	for _, v := range verdict.Violations {
		add(v)
	}
	for _, v := range verdict.Warnings {
		if v.Softening == decision.ByEnforcement || v.Softening == decision.ByExisting || v.Softening == decision.ByImported {
			add(v)
		}
	}
	return messages
}

// still are the messages of the policies that match.
func still(messages map[string]string, matched []string) map[string]string {
	out := map[string]string{}
	for name, message := range messages {
		if slices.Contains(matched, name) {
			out[name] = message
		}
	}
	return out
}
