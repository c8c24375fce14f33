// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"crypto/sha256"
	"fmt"

	"k8s.io/utils/lru"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// remembered is how many policies that ended processes, and inputs for which one did, are
// remembered: those that were asked for last.
const remembered = 1024

// offenders are the policies that ended processes, by digest.
type offenders struct {
	// quarantined has why a policy fails whatever the input is, namespaces where it ended a process
	// first, and inputs why it fails for one.
	quarantined, namespaces, inputs *lru.Cache
}

// input has the digests of a policy and of a Subject.
type input struct{ policy, subject string }

// refuse has a policy refused until its digest changes.
func (o offenders) refuse(digest, why string) { o.quarantined.Add(digest, why) }

// blame notes that a policy ended a process: for inputs of two namespaces, it is in quarantine. It
// reports whether it is there now.
func (o offenders) blame(digest string, on *engine.Subject, why string) (quarantined bool) {
	o.inputs.Add(input{digest, digestOf(on)}, why)
	if first := known(o.namespaces, digest); first == "" {
		o.namespaces.Add(digest, on.Namespace)
	} else if first != on.Namespace {
		o.refuse(digest, why)
	}
	return o.refused(digest) != ""
}

// tooCostly has a policy refused if compiling it ended a process. It reports whether one did.
func (o offenders) tooCostly(err error, digests map[string]string) bool {
	died := asDeath(err)
	if died == nil || digests[died.of] == "" || o.refused(digests[died.of]) != "" {
		return false
	}
	o.refuse(digests[died.of], fmt.Sprintf("%s.rego:1:1: compiling the module: %v; expected a module that compiles with less: nest less, and write fewer or smaller rules",
		died.of, died))
	return true
}

// refused is why a policy is not to be used; empty if it is.
func (o offenders) refused(digest string) string { return known(o.quarantined, digest) }

// suspicion is why a policy fails that is not evaluated apart.
const suspicion = v1alpha1.ReasonResourceExhausted + ": it ended a process before, and there is no time to evaluate it apart"

// suspects are the policies that ended a process for any input, by name; nil for none.
func (o offenders) suspects(now *loaded) map[string]string {
	if o.namespaces.Len()+o.quarantined.Len() == 0 {
		return nil
	}
	return now.named(func(digest string) string {
		if known(o.namespaces, digest) == "" && o.refused(digest) == "" {
			return ""
		}
		return suspicion
	})
}

// fail are the policies that ended a process for this input, and why, by name.
func (o offenders) fail(now *loaded, on *engine.Subject) map[string]string {
	subject := digestOf(on)
	return now.named(func(digest string) string { return known(o.inputs, input{digest, subject}) })
}

// named are the policies that have a reason, by name.
func (l *loaded) named(why func(digest string) string) map[string]string {
	all := map[string]string{}
	for name, digest := range l.digests {
		if text := why(digest); text != "" {
			all[name] = text
		}
	}
	return all
}

// known is the text of a key; empty if there is none.
func known(texts *lru.Cache, key any) string {
	text, _ := texts.Get(key)
	s, _ := text.(string)
	return s
}

func digestOf(on *engine.Subject) string {
	sum := sha256.Sum256(fmt.Append(nil, on.Stage, on.Cluster, on.Stands, on.Ends, string(on.Text)))
	return string(sum[:])
}
