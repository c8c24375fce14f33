// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Takeover is a change of an import that waits for the confirmation of an
// administrator: the export By is older than that of Decider, and would decide what
// Decider, or another export of which the import consists, decides now.
type Takeover struct {
	Decider, By SourceExport
	// Fields are the properties of the import that would change, in a fixed order.
	// No text in them is from a member.
	Fields []string
	// Changes says how: "type: ClusterSetIP to Headless".
	Changes string
}

// Confirm is the command with which an administrator of this cluster confirms the
// takeover of the import key.
func (t *Takeover) Confirm(key types.NamespacedName) string {
	return fmt.Sprintf("kubectl comity confirm takeover %s --from %s", key, t.By.Cluster)
}

// ReportTakeovers is what cluster is to know of the takeovers in cluster self: of the
// one by its own export, else of the first one that its export waits to be replaced
// by; empty if none is about it. It names no third cluster, and no value of another
// one's export: the other one may be exported to self alone.
func ReportTakeovers(held []Takeover, cluster, self ClusterID, key types.NamespacedName) string {
	at := slices.IndexFunc(held, func(t Takeover) bool { return t.By.Cluster == cluster })
	if at < 0 {
		at = slices.IndexFunc(held, func(t Takeover) bool { return t.Decider.Cluster == cluster })
	}
	if at < 0 {
		return ""
	}
	t := held[at]
	name := func(id ClusterID, otherwise string) string {
		if id == self || id == cluster {
			return "of cluster " + string(id)
		}
		return otherwise
	}
	// The place comes first: conditions about many clusters quote only the beginning.
	return fmt.Sprintf("see condition TakeoverHeld of ServiceImport %s in cluster %s, which has the command: "+
		"the export %s is older than the one %s that decides there, and would change its %s",
		key, self, name(t.By.Cluster, "of another cluster"), name(t.Decider.Cluster, "of another cluster"), strings.Join(t.Fields, ", "))
}
