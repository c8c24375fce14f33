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

func TestParseAgentInfoNamesWhatIsAtFault(t *testing.T) {
	for text, want := range map[string]string{
		"":   model.AnnotationAgent,
		"[]": model.AnnotationAgent,
		`{"clusterset": "s", "version": "v", "exchange": "mesh", "serviceAccount": "a"}`:                               "cluster id",
		`{"id": "A.B", "clusterset": "s", "version": "v", "exchange": "mesh", "serviceAccount": "a"}`:                  "cluster id",
		`{"id": "a", "clusterset": "s", "version": "v", "exchange": "hub", "serviceAccount": "a", "podCIDRs": ["x"]}`:  `"x"`,
		`{"id": "a", "clusterset": "s", "version": "v", "exchange": "hub", "serviceAccount": "a", "serviceCIDRs": 10}`: "serviceCIDRs",
	} {
		_, err := model.ParseAgentInfo(map[string]string{model.AnnotationAgent: text})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), model.AnnotationAgent) {
			t.Errorf("%s: error %v does not name %q", text, err, want)
		}
	}
}
