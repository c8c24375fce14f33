// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/controllers"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
)

// peerImports says what the imports of this cluster have of others, for the status of Peers.
type peerImports struct {
	controllers *controllers.Controllers
	reader      client.Reader // a cache
	log         logr.Logger
}

// Of implements members.Imports.
func (p peerImports) Of(cluster model.ClusterID) members.ImportCounts {
	waiting := p.controllers.WaitingOf(cluster)
	return members.ImportCounts{Missing: waiting.Missing, Waiting: waiting.Takeovers, FirstMissing: waiting.FirstMissing, FirstWaiting: waiting.FirstTakeover}
}

// Listed implements members.Imports.
func (p peerImports) Listed(cluster model.ClusterID) bool {
	listed, err := controllers.IsListed(context.Background(), p.reader, cluster) // a cache: it does not wait
	if err != nil {
		p.log.Error(err, "it is not known whether imports list a cluster", "peer", cluster)
	}
	return listed || err != nil
}

// Subscribe implements members.Imports.
func (p peerImports) Subscribe(changed func(model.ClusterID)) (cancel func()) {
	return p.controllers.SourcesChanged().Subscribe(changed)
}
