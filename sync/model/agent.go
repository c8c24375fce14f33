// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"strings"
)

// LeaderLease is the name of the Lease, in the agent's own namespace, whose
// holder is the replica that writes. Its annotations describe the installed
// agent to `kubectl comity`; see AgentInfo.
const LeaderLease = "comity-leader"

// Annotations of the leader Lease.
const (
	AnnotationAgentClusterID      = "comity.dev/cluster-id"
	AnnotationAgentClusterSet     = "comity.dev/clusterset"
	AnnotationAgentVersion        = "comity.dev/version"
	AnnotationAgentExchange       = "comity.dev/exchange"
	AnnotationAgentServiceAccount = "comity.dev/service-account"
	AnnotationAgentPodCIDRs       = "comity.dev/pod-cidrs"
	AnnotationAgentServiceCIDRs   = "comity.dev/service-cidrs"
)

// ExchangeMode says where a member publishes.
type ExchangeMode string

// The modes of an agent.
const (
	// ExchangeMesh: each member publishes in its own API server.
	ExchangeMesh ExchangeMode = "mesh"
	// ExchangeHub: all members publish in one API server.
	ExchangeHub ExchangeMode = "hub"
)

// AgentInfo is what an installed agent states about itself on its leader Lease.
type AgentInfo struct {
	ID      ClusterID
	Set     string
	Version string
	Mode    ExchangeMode
	// ServiceAccount is the account that the agent's Pods run as, in the
	// namespace of the Lease.
	ServiceAccount string
	// PodCIDRs and ServiceCIDRs are the ranges given to the agent by flag; empty
	// if it reads them from the cluster.
	PodCIDRs, ServiceCIDRs []netip.Prefix
}

// Annotations encodes i for the leader Lease. Every key is present, so that
// applying them also clears what an earlier agent stated.
func (i AgentInfo) Annotations() map[string]string {
	return map[string]string{
		AnnotationAgentClusterID:      string(i.ID),
		AnnotationAgentClusterSet:     i.Set,
		AnnotationAgentVersion:        i.Version,
		AnnotationAgentExchange:       string(i.Mode),
		AnnotationAgentServiceAccount: i.ServiceAccount,
		AnnotationAgentPodCIDRs:       JoinPrefixes(i.PodCIDRs),
		AnnotationAgentServiceCIDRs:   JoinPrefixes(i.ServiceCIDRs),
	}
}

// ParseAgentInfo reads the annotations of a leader Lease. The error names the
// annotation that is missing or invalid.
func ParseAgentInfo(annotations map[string]string) (AgentInfo, error) {
	info := AgentInfo{
		Set: annotations[AnnotationAgentClusterSet], Version: annotations[AnnotationAgentVersion],
		Mode:           ExchangeMode(annotations[AnnotationAgentExchange]),
		ServiceAccount: annotations[AnnotationAgentServiceAccount],
	}
	for _, key := range []string{AnnotationAgentClusterID, AnnotationAgentClusterSet, AnnotationAgentVersion, AnnotationAgentServiceAccount} {
		if annotations[key] == "" {
			return AgentInfo{}, fmt.Errorf("annotation %s is missing", key)
		}
	}
	var err error
	if info.ID, err = ParseClusterID(annotations[AnnotationAgentClusterID]); err != nil {
		return AgentInfo{}, fmt.Errorf("annotation %s: %w", AnnotationAgentClusterID, err)
	}
	if info.Mode != ExchangeMesh && info.Mode != ExchangeHub {
		return AgentInfo{}, fmt.Errorf("annotation %s is %q; expected %s or %s", AnnotationAgentExchange, info.Mode, ExchangeMesh, ExchangeHub)
	}
	if info.PodCIDRs, err = splitPrefixes(annotations[AnnotationAgentPodCIDRs]); err != nil {
		return AgentInfo{}, fmt.Errorf("annotation %s: %w", AnnotationAgentPodCIDRs, err)
	}
	if info.ServiceCIDRs, err = splitPrefixes(annotations[AnnotationAgentServiceCIDRs]); err != nil {
		return AgentInfo{}, fmt.Errorf("annotation %s: %w", AnnotationAgentServiceCIDRs, err)
	}
	return info, nil
}

// JoinPrefixes lists prefixes, separated by commas.
func JoinPrefixes(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, prefix := range prefixes {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, ",")
}

func splitPrefixes(text string) ([]netip.Prefix, error) {
	if text == "" {
		return nil, nil
	}
	var prefixes []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not an address range: %w", part, err)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}
