// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/sync/join"
)

// Join joins members by the addresses in their RESTConfigs unless others are given, without
// a check from inside the clusters.
func Join(ctx context.Context, hub *join.Cluster, members []join.Cluster, opts join.Options) error {
	members = slices.Clone(members)
	reached := []*join.Cluster{}
	for i := range members {
		reached = append(reached, &members[i])
	}
	if hub != nil {
		at := *hub
		hub = &at
		reached = append(reached, hub)
	}
	for _, c := range reached {
		if c.Server != "" || c.RESTConfig == nil {
			continue
		}
		base, _, err := rest.DefaultServerUrlFor(c.RESTConfig)
		if err != nil {
			return fmt.Errorf("server %q: %w", c.RESTConfig.Host, err)
		}
		c.Server = base.String()
	}
	prepared, err := join.Prepare(ctx, hub, members, opts)
	if err != nil {
		return err
	}
	return prepared.Write(ctx)
}
