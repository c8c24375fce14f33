// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"time"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// settling is how old an import must be before a takeover of it is held: GitOps
// creates one export in many clusters at once, in any order.
const settling = 2 * time.Minute

// Settling is what one process remembers of the age of an import. The clocks of the
// process and of the API server may be hours apart, so the creation time counts only
// for an import that was there when the process read it first. The zero value is that
// of an import that the process has not read yet.
type Settling struct {
	// Read is true once the process has read whether there is an import.
	Read bool
	// At is when takeovers of the import begin to be held; zero if they are held.
	At time.Time
}

// After is what is to be remembered once imported was read. First match wins:
//
//	there is no import                  it settles two minutes from now
//	the process read none before        as that was decided when it last did
//	it is the first that it reads       it settles two minutes after its creation, and
//	                                    is settled if that time was or is to come
//	it is settled, or its time came     it is settled, wherever the clock goes
//
// An import that is made again because somebody deleted its ServiceImport is as old as
// before.
func (s Settling) After(imported *mcsv1beta1.ServiceImport, now time.Time) Settling {
	if imported == nil || !model.IsManaged(imported) {
		return Settling{Read: true, At: now.Add(settling)}
	}
	next := Settling{Read: true, At: s.At}
	if !s.Read {
		next.At = imported.CreationTimestamp.Add(settling)
	}
	if left := next.At.Sub(now); left <= 0 || left > settling { // more is left if the clock was set back
		next.At = time.Time{}
	}
	return next
}
