// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// remembered is how many policies that ended processes, and inputs for which each did, are
// remembered.
const remembered = 1024

// offenders are the policies that ended processes, by digest.
type offenders struct {
	mu  sync.Mutex
	all map[string]offender
}

// offender is why a policy fails, by the input; and whatever the input is, once it is in quarantine.
type offender struct {
	inputs     map[input]string
	quarantine string
}

// input has the digest of a Subject.
type input struct{ namespace, digest string }

// note changes what is known of a policy.
func (o *offenders) note(digest string, change func(*offender)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one, known := o.all[digest]
	if !known && (o.all == nil || len(o.all) == remembered) {
		o.all = map[string]offender{}
	}
	if one.inputs == nil || len(one.inputs) == remembered {
		one.inputs = map[input]string{}
	}
	change(&one)
	o.all[digest] = one
}

// refuse has a policy refused until its digest changes.
func (o *offenders) refuse(digest, why string) {
	o.note(digest, func(one *offender) { one.quarantine = why })
}

// blame notes that a policy ended a process. It reports whether it is in quarantine now.
func (o *offenders) blame(digest string, on *engine.Subject, why string) (quarantined bool) {
	o.note(digest, func(one *offender) {
		one.inputs[keyOf(on)] = why
		for other := range one.inputs {
			if other.namespace != on.Namespace {
				one.quarantine = why
			}
		}
		quarantined = one.quarantine != ""
	})
	return quarantined
}

// tooCostly has a policy refused if compiling it ended a process. It reports whether one did.
func (o *offenders) tooCostly(err error, digests map[string]string) bool {
	died := asDeath(err)
	if died == nil || digests[died.of] == "" || o.refused(digests[died.of]) != "" {
		return false
	}
	o.refuse(digests[died.of], fmt.Sprintf("%s.rego:1:1: compiling the module: %v; expected a module that compiles with less: nest less, and write fewer or smaller rules",
		died.of, died))
	return true
}

// refused is why a policy is not to be used; empty if it is.
func (o *offenders) refused(digest string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[digest].quarantine
}

// suspicion is why a policy fails that is not evaluated apart.
const suspicion = v1alpha1.ReasonResourceExhausted + ": it ended a process before, and there is no time to evaluate it apart"

// suspects are the policies that ended a process for any input, by name.
func (o *offenders) suspects(now *loaded) map[string]string {
	return o.named(now, func(offender) string { return suspicion })
}

// fail are the policies that ended a process for this input, and why, by name.
func (o *offenders) fail(now *loaded, on *engine.Subject) map[string]string {
	key := keyOf(on)
	return o.named(now, func(one offender) string { return one.inputs[key] })
}

func (o *offenders) named(now *loaded, why func(offender) string) map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.all) == 0 {
		return nil
	}
	all := map[string]string{}
	for name, digest := range now.digests {
		if one, known := o.all[digest]; known && why(one) != "" {
			all[name] = why(one)
		}
	}
	return all
}

func keyOf(on *engine.Subject) input {
	sum := sha256.Sum256(fmt.Append(nil, on.Stage, on.Cluster, on.Stands, on.Ends, string(on.Text)))
	return input{on.Namespace, string(sum[:])}
}
