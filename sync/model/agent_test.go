// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/sync/model"
)

func agentInfo() model.AgentInfo {
	return model.AgentInfo{
		ID: "a", Set: "production", Version: "v1.2.3", Mode: model.ExchangeHub, ServiceAccount: "comity",
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/56")},
	}
}

func TestAgentInfoSurvivesItsAnnotations(t *testing.T) {
	want := agentInfo()
	got, err := model.ParseAgentInfo(want.Annotations())
	if err != nil {
		t.Fatal(err)
	}
	equal := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(want, got, equal); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseAgentInfoNamesTheAnnotationAtFault(t *testing.T) {
	for key, value := range map[string]string{
		model.AnnotationAgentClusterID:      "",
		model.AnnotationAgentClusterSet:     "",
		model.AnnotationAgentVersion:        "",
		model.AnnotationAgentServiceAccount: "",
		model.AnnotationAgentExchange:       "star",
		model.AnnotationAgentPodCIDRs:       "10.0.0.0/8,many",
		model.AnnotationAgentServiceCIDRs:   "10.0.0.0",
	} {
		annotations := agentInfo().Annotations()
		annotations[key] = value
		if _, err := model.ParseAgentInfo(annotations); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%q: error %v does not name the annotation", key, value, err)
		}
	}
	annotations := agentInfo().Annotations()
	annotations[model.AnnotationAgentClusterID] = "A.B"
	if _, err := model.ParseAgentInfo(annotations); err == nil {
		t.Error("an invalid cluster id is accepted")
	}
}
