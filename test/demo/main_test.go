// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/demo/world"
)

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want options
		// err is part of the error; empty if there is none.
		err string
	}{
		{name: "nothing means control planes, to the end", want: options{clusters: world.ControlPlanes}},
		{
			name: "everything may be set", args: []string{"--clusters=kind", "--keep", "--stop-after", "reach"},
			want: options{clusters: world.InDocker, keep: true, stopAfter: "reach"},
		},
		{name: "an unknown kind is refused with the known ones", args: []string{"--clusters", "minikube"}, err: "expected control-planes or kind"},
		{name: "an unknown step is refused with the known ones", args: []string{"--stop-after", "dns"}, err: "refusal, imports, names"},
		{name: "a step of the other kind is refused", args: []string{"--stop-after", "reach"}, err: `no step "reach" with --clusters control-planes`},
		{
			name: "a family of addresses is for kind", args: []string{"--clusters=kind", "--family=ipv6"},
			want: options{clusters: world.InDocker, family: clusters.IPv6},
		},
		{name: "a family is refused where nothing follows it", args: []string{"--family", "ipv6"}, err: "--family ipv6 is for --clusters kind"},
		{name: "an unknown family is refused with the known ones", args: []string{"--family", "ipv5"}, err: "expected ipv4, ipv6 or dual"},
		{name: "an argument is refused", args: []string{"kind"}, err: `"kind" is not expected`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parse(test.args)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(options{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
