// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// kindClusterset is that of a Clusterset among the manifests, and defaultCluster the id of the
// cluster that decides if none is given.
const kindClusterset, defaultCluster = "Clusterset", "local"

// Clusterset is what manifests cannot say: which cluster decides, what its other
// members are, and who asks. It is for the tools alone; no cluster stores it.
type Clusterset struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Cluster is the id of the cluster that decides; "local" when empty.
	Cluster string `json:"cluster,omitempty"`
	// User makes the request of a CREATE or UPDATE.
	User *decision.UserInfo `json:"user,omitempty"`
	// Published are the exports that are published now, as namespace/name.
	Published []string `json:"published,omitempty"`
	// Imported are the exports of members that are imported now, as cluster/namespace/name.
	Imported []string `json:"imported,omitempty"`
	// Members are the other members.
	Members []Member `json:"members,omitempty"`
}

// Member is another member of the clusterset.
type Member struct {
	ID string `json:"id"`
	// Labels are those of its Peer in the cluster that decides. kubectl comity join sets
	// cluster.clusterset.k8s.io, so that it need not be given.
	Labels map[string]string `json:"labels,omitempty"`
	// Namespaces are its namespaces with their identity labels. One that is not listed
	// is absent; without any list, the member was not read yet.
	Namespaces map[string]map[string]string `json:"namespaces,omitempty"`
	// Exports are what it publishes, for policies with stage Import.
	Exports []decision.ImportedExport `json:"exports,omitempty"`
}

// complete refuses what no clusterset is, and sets defaults. Each member gets the label with
// its id that a join gives to its Peer: policies, and the selectors of exports, see it with
// the others.
func (c *Clusterset) complete() error {
	c.Cluster = cmp.Or(c.Cluster, defaultCluster)
	if c.APIVersion != command.APIVersion {
		return fmt.Errorf("apiVersion of a Clusterset is %q; expected %s", c.APIVersion, command.APIVersion)
	}
	seen := map[string]bool{}
	for i, member := range c.Members {
		if member.ID == "" || member.ID == c.Cluster || seen[member.ID] {
			return fmt.Errorf("members[%d].id is %q; expected the id of a cluster other than the one that decides (%s), each once", i, member.ID, c.Cluster)
		}
		seen[member.ID] = true
		c.Members[i].Labels = labels.Merge(member.Labels, labels.Set{model.LabelClusterID: member.ID})
	}
	return nil
}

// peers implements facts.Peers.
type peers struct{ *Clusterset }

// Members implements facts.Peers.
func (p peers) Members() []model.Member {
	return model.Map(p.Clusterset.Members, func(member Member) model.Member {
		return model.Member{ID: model.ClusterID(member.ID), Synced: member.Namespaces != nil, Labels: member.Labels}
	})
}

// Namespace implements facts.Peers.
func (p peers) Namespace(name string) map[model.ClusterID]decision.PeerNamespace {
	out := map[model.ClusterID]decision.PeerNamespace{}
	for _, member := range p.Clusterset.Members {
		if identity, has := member.Namespaces[name]; has {
			out[model.ClusterID(member.ID)] = decision.PeerNamespace{Presence: decision.Present, Labels: identity}
		} else if member.Namespaces != nil {
			out[model.ClusterID(member.ID)] = decision.PeerNamespace{Presence: decision.Absent}
		}
	}
	return out
}
