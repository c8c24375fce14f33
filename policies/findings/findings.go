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
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// MaxItems is how many violations Of lists, and maxMessage the length of the message of one, in
// bytes.
const MaxItems, maxMessage = 20, 256

// Findings hold the last verdict on each export and import. The zero value is not
// usable; see New. All methods may be called from any goroutine.
type Findings struct {
	// changed holds one element after a change.
	changed chan struct{}

	mu       sync.Mutex
	subjects map[types.NamespacedName]map[string]finding // by source cluster; an export has none
}

// finding is the part of a verdict that counts.
type finding struct {
	digest   string
	matched  []string
	violated map[string]string // messages by policy
}

// New returns Findings of nothing.
func New() *Findings {
	return &Findings{changed: make(chan struct{}, 1), subjects: map[types.NamespacedName]map[string]finding{}}
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
	before, known := f.subjects[key][cluster]
	if verdict.Outcome == decision.NotEvaluated {
		if verdict.Digest == "" && known {
			return // no policy was asked
		}
		now.violated = maps.Clone(before.violated)
		maps.DeleteFunc(now.violated, func(name, _ string) bool { return !slices.Contains(now.matched, name) })
	}
	if f.subjects[key] == nil {
		f.subjects[key] = map[string]finding{}
	}
	f.subjects[key][cluster] = now
	if !known || !reflect.DeepEqual(before, now) {
		f.notify()
	}
}

// Forget drops what is known of the imports of key from some clusters; the export key has
// an empty one.
func (f *Findings) Forget(key types.NamespacedName, from func(cluster string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for cluster := range f.subjects[key] {
		if from(cluster) {
			f.remove(key, cluster)
		}
	}
}

// Changed receives after a change; changes that nobody received yet count as one.
func (f *Findings) Changed() <-chan struct{} { return f.changed }

// Of is how many exports and imports a policy matches, by the name of the ExportPolicy, and which
// violate it: the first MaxItems of them by namespace, name and cluster. The message of each is its
// first violation, without the name of the policy.
func (f *Findings) Of(name string) (matched int32, violations v1alpha1.Violations) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, of := range f.subjects {
		for cluster, found := range of {
			if slices.Contains(found.matched, name) {
				matched++
			}
			if message, violates := found.violated[name]; violates {
				violations.Items = append(violations.Items, v1alpha1.ViolationItem{Namespace: key.Namespace, Name: key.Name, Cluster: cluster, Message: message})
			}
		}
	}
	slices.SortFunc(violations.Items, func(a, b v1alpha1.ViolationItem) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	violations.Total = int32(len(violations.Items))
	violations.Items = violations.Items[:min(len(violations.Items), MaxItems)]
	return matched, violations
}

// Retain drops the exports that do not exist, and reports whether every one that does
// was reviewed with the policies of this digest.
func (f *Findings) Retain(exports []types.NamespacedName, digest string) (complete bool) {
	exist, reviewed := sets.New(exports...), 0
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, of := range f.subjects {
		found, known := of[""]
		switch {
		case !known:
		case !exist.Has(key):
			f.remove(key, "")
		case found.digest == digest:
			reviewed++
		}
	}
	return reviewed == len(exist)
}

// remove drops what is known of a subject.
func (f *Findings) remove(key types.NamespacedName, cluster string) {
	delete(f.subjects[key], cluster)
	if len(f.subjects[key]) == 0 {
		delete(f.subjects, key)
	}
	f.notify()
}

func (f *Findings) notify() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// violated are the messages of the first violation of each policy: verdicts are
// sorted. A denial that enforcement or spec.existing soften is a violation, too.
func violated(verdict decision.Verdict) map[string]string {
	softened := slices.DeleteFunc(slices.Clone(verdict.Warnings), func(v decision.Violation) bool {
		return v.Softening == decision.NotSoftened || v.Softening == decision.ByException
	})
	messages := map[string]string{}
	for _, v := range slices.Concat(verdict.Violations, softened) {
		if _, has := messages[v.Policy]; !has {
			messages[v.Policy] = decision.Shown(v.Description(), maxMessage)
		}
	}
	return messages
}
