// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/model"
)

func sites(versions ...string) []*Site {
	var all []*Site
	for i, version := range versions {
		all = append(all, &Site{Agent: Agent{AgentInfo: model.AgentInfo{ID: model.ClusterID(string(rune('a' + i))), Version: version}}})
	}
	return all
}

func TestSkew(t *testing.T) {
	for _, test := range []struct {
		name, plugin string
		agents       []string
		want         string
	}{
		{"the same", "v1.2.3", []string{"v1.2.3", "v1.2.3"}, ""},
		{"one minor version", "v1.2.3", []string{"v1.3.0", "v1.1.9"}, "this plugin is v1.2.3, cluster a runs Comity v1.3.0, cluster b runs Comity v1.1.9;"},
		{"one minor version on one side", "v1.2.3", []string{"v1.3.0", "v1.2.0"}, ""},
		{"an older agent", "v1.4.0", []string{"v1.2.0"}, "this plugin is v1.4.0, cluster a runs Comity v1.2.0;"},
		{"another major version", "v2.0.0", []string{"v1.0.0"}, "cluster a runs"},
		{"local builds of one commit", "v1.2.3-4-gabc", []string{"v1.2.3-4-gabc"}, ""},
		{"a word that is no version", "dev", []string{"v1.2.3"}, "this plugin is dev"},
		{"nobody", "dev", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer func(was string) { command.Version = was }(command.Version)
			command.Version = test.plugin
			got := Skew(sites(test.agents...))
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q in it", got, test.want)
			}
		})
	}
}
