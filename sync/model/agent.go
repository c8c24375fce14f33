// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// LeaderLease is the name of the Lease, in the agent's own namespace, whose
// holder is the replica that writes. Its annotation AnnotationAgent describes the
// installed agent to `kubectl comity`.
const LeaderLease = "comity-leader"

// AnnotationAgent is that on the leader Lease with the AgentInfo of the agent.
const AnnotationAgent = "comity.dev/agent"

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
	ID      ClusterID    `json:"id"`
	Set     string       `json:"clusterset"`
	Version string       `json:"version"`
	Mode    ExchangeMode `json:"exchange"`
	// ServiceAccount is the account that the agent's Pods run as, in the
	// namespace of the Lease.
	ServiceAccount string `json:"serviceAccount"`
	// PodCIDRs and ServiceCIDRs are the ranges given to the agent by flag; empty
	// if it reads them from the cluster.
	PodCIDRs     []netip.Prefix `json:"podCIDRs,omitempty"`
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
}

// Annotations encodes i for the leader Lease.
func (i AgentInfo) Annotations() map[string]string {
	text, _ := json.Marshal(i) // holds nothing that JSON cannot express
	return map[string]string{AnnotationAgent: string(text)}
}

// ParseAgentInfo reads the annotations of a leader Lease. The error says what is missing or
// invalid.
func ParseAgentInfo(annotations map[string]string) (info AgentInfo, err error) {
	if err = json.Unmarshal([]byte(annotations[AnnotationAgent]), &info); err == nil {
		_, err = ParseClusterID(string(info.ID))
	}
	switch {
	case err != nil:
	case info.Set == "" || info.Version == "" || info.ServiceAccount == "":
		err = errors.New("expected clusterset, version and serviceAccount")
	case info.Mode != ExchangeMesh && info.Mode != ExchangeHub:
		err = fmt.Errorf("exchange is %q; expected %s or %s", info.Mode, ExchangeMesh, ExchangeHub)
	}
	if err != nil {
		return AgentInfo{}, fmt.Errorf("annotation %s: %w", AnnotationAgent, err)
	}
	return info, nil
}

// PrefixTexts are prefixes as text.
func PrefixTexts(prefixes []netip.Prefix) []string {
	var texts []string
	for _, prefix := range prefixes {
		texts = append(texts, prefix.String())
	}
	return texts
}

// ParsePrefixes reads address ranges. One with bits set after the prefix is refused: it is not clear what was meant.
func ParsePrefixes(texts []string) (prefixes []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Errorf("%q is not an address range; expected one such as 10.244.0.0/16, with no bit set after the prefix", text)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// ReadPrefixes reads address ranges that may be listed in one text, and leaves out what is
// none: an object of the API has what the API server accepted.
func ReadPrefixes(texts ...string) (all []netip.Prefix) {
	for text := range strings.SplitSeq(strings.Join(texts, ","), ",") {
		if prefix, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			all = append(all, prefix.Masked())
		}
	}
	return all
}
