// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// agentInfo publishes the properties of this agent as annotations of the leader
// Lease, for `kubectl comity`. It runs on the leader. Leader election updates the
// same object. This patches only the annotations; leader election reads them
// after its next update conflicts.
type agentInfo struct {
	// reader has no cache, because nothing else watches Leases.
	reader client.Reader
	writer client.Writer
	lease  types.NamespacedName
	info   model.AgentInfo
	// interval is how often the Lease is read.
	interval time.Duration
	log      logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*agentInfo) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (a *agentInfo) Start(ctx context.Context) error {
	said := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := a.update(ctx); err == nil {
			said = ""
		} else if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			a.log.Info("annotations of the leader Lease are not up to date, retrying", "namespace", a.lease.Namespace, "name", a.lease.Name, "reason", said)
		}
	}, a.interval)
	return nil
}

// update patches the annotations that are missing or differ.
func (a *agentInfo) update(ctx context.Context) error {
	lease := &coordinationv1.Lease{}
	if err := a.reader.Get(ctx, a.lease, lease); apierrors.IsNotFound(err) {
		return nil // leader election creates it within seconds
	} else if err != nil {
		return fmt.Errorf("read Lease %s: %w", a.lease, err)
	}
	before := lease.DeepCopy()
	lease.Annotations = labels.Merge(lease.Annotations, a.info.Annotations())
	if maps.Equal(before.Annotations, lease.Annotations) {
		return nil
	}
	if err := a.writer.Patch(ctx, lease, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch the annotations of Lease %s: %w", a.lease, err)
	}
	return nil
}

// describe returns the properties of this agent.
func describe(o Options, self identity, pods, services []netip.Prefix) model.AgentInfo {
	mode := model.ExchangeMesh
	if o.ExchangeKubeconfig != "" {
		mode = model.ExchangeHub
	}
	return model.AgentInfo{
		ID: self.cluster, Set: self.set, Version: version, Mode: mode,
		ServiceAccount: os.Getenv("POD_SERVICE_ACCOUNT"), PodCIDRs: pods, ServiceCIDRs: services,
	}
}
