// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/agent"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// importMade notes when a ServiceImport was made, by whomever.
func (k *checker) importMade(write apiserver.Write) {
	if s, is := write.After.(*mcsv1beta1.ServiceImport); is && write.Before == nil {
		k.takeovers.made[s.UID] = k.world.now
	}
}

// begins notes when a process reads what it is about to work on.
func (k *checker) begins(p *agent.Process, key types.NamespacedName) {
	k.takeovers.began[importOf{p, key}] = k.world.now
}

// read notes that a reconcile read an import, or that there is none.
func (k *checker) read(p process) {
	at := importOf{p.Process, p.Seen.Key}
	imported, uid := p.Seen.Import, types.UID("")
	if imported != nil && model.IsManaged(imported) {
		uid = imported.UID
	}
	last, known := k.takeovers.last[at]
	if uid == "" || !known && seemsNew(imported, p.Seen.View.Now) || last != "" && last != uid {
		k.takeovers.young[at] = k.takeovers.began[at]
	}
	k.takeovers.last[at] = uid
}

// seemsNew reports whether an import is new by the clocks of the API server and of
// a process, all that one that starts can know.
func seemsNew(imported *mcsv1beta1.ServiceImport, now time.Time) bool {
	created := imported.CreationTimestamp.Time
	return !created.After(now) && created.Add(settling).After(now)
}

func (k *checker) isYoung(at importOf, imported *mcsv1beta1.ServiceImport) bool {
	since := k.takeovers.made[imported.UID]
	if read := k.takeovers.young[at]; read.After(since) {
		since = read
	}
	return k.takeovers.began[at].Before(since.Add(settling))
}
