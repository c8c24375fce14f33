// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// HoldUntilConfirmed is a takeover hold that no time ends. Zero holds no takeover,
// which is KEP-1645 to the letter; any other value is how long one is held.
const HoldUntilConfirmed time.Duration = -1

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
	// Others is how many further exports wait for a confirmation of their own.
	Others int
	// Until is when the hold ends by itself; zero if it does not.
	Until time.Time
}

// Confirm is the command with which an administrator of this cluster confirms the
// takeover of the import key.
func (t *Takeover) Confirm(key types.NamespacedName) string {
	return fmt.Sprintf("kubectl annotate serviceimport -n %s %s %s=%s --overwrite", key.Namespace, key.Name, AnnotationConfirmTakeover, t.By.ID())
}

// ReportTo is what cluster, one of the two that the takeover is about, is to know of
// a takeover in cluster self; empty if it is about neither. It names no third
// cluster, and no value of another one's export: the other one may be exported to
// self alone.
func (t *Takeover) ReportTo(cluster, self ClusterID, key types.NamespacedName) string {
	if t == nil || cluster != t.Decider.Cluster && cluster != t.By.Cluster {
		return ""
	}
	name := func(id ClusterID, otherwise string) string {
		if id == self || id == cluster {
			return "of cluster " + string(id)
		}
		return otherwise
	}
	return fmt.Sprintf("the export %s is older than the one %s that decides the import in cluster %s, and would change its %s; "+
		"the change waits there until an administrator of cluster %s confirms it: see condition TakeoverHeld of ServiceImport %s",
		name(t.By.Cluster, "of another cluster"), name(t.Decider.Cluster, "of another cluster"), self, strings.Join(t.Fields, ", "), self, key)
}
