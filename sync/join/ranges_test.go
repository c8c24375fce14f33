// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/comity-mcs/comity/sync/model"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestPodRangesThatMeetAreRefused(t *testing.T) {
	cases := []struct {
		name string
		a, b Ranges
		want string // part of the error; empty if there is none
	}{
		{"apart", Ranges{Pods: prefixes("10.1.0.0/16")}, Ranges{Pods: prefixes("10.2.0.0/16")}, ""},
		{"nothing is known", Ranges{}, Ranges{}, ""},
		{"the same pods", Ranges{Pods: prefixes("10.1.0.0/16")}, Ranges{Pods: prefixes("10.1.0.0/16")}, "pod range 10.1.0.0/16 of cluster a overlaps the pod range 10.1.0.0/16 of cluster b"},
		{"one within the other", Ranges{Pods: prefixes("10.0.0.0/8")}, Ranges{Pods: prefixes("10.2.0.0/16")}, "pod range 10.0.0.0/8 of cluster a overlaps the pod range 10.2.0.0/16"},
		{"pods in the services of the other", Ranges{Pods: prefixes("10.96.1.0/24")}, Ranges{Services: prefixes("10.96.0.0/12")}, "overlaps the service range 10.96.0.0/12 of cluster b"},
		{"services in the pods of the other", Ranges{Services: prefixes("10.96.0.0/12")}, Ranges{Pods: prefixes("10.96.1.0/24")}, "service range 10.96.0.0/12 of cluster a"},
		{"the same services, as by default", Ranges{Services: prefixes("10.96.0.0/12")}, Ranges{Services: prefixes("10.96.0.0/12")}, ""},
		{"the second family", Ranges{Pods: prefixes("10.1.0.0/16", "fd00:1::/48")}, Ranges{Pods: prefixes("10.2.0.0/16", "fd00:1:0:8::/64")}, "fd00:1::/48"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			side := func(id model.ClusterID, r Ranges) *member {
				return &member{Cluster: Cluster{ID: id, PodCIDRs: append([]netip.Prefix{}, r.Pods...), ServiceCIDRs: append([]netip.Prefix{}, r.Services...)}}
			}
			p := &Prepared{members: []*member{side("a", c.a), side("b", c.b)}}
			err := p.learn(t.Context())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
			p.members[1].opts.AllowOverlap = true
			if err := p.learn(t.Context()); err != nil {
				t.Errorf("allowed, yet refused: %v", err)
			}
		})
	}
}

func TestWhatIsAcceptedOfAPeer(t *testing.T) {
	nodes := Ranges{Pods: prefixes("10.2.1.0/24", "10.2.0.0/24"), Source: "the pod ranges of its nodes"}
	cases := []struct {
		name           string
		given, told    []netip.Prefix
		stored         string
		peer           Ranges
		accepted, note string
		fails          string
	}{
		{"what the administrator gave, whatever the peer has", prefixes("10.9.0.0/16"), nil, "10.2.0.0/16", nodes, "10.9.0.0/16", "accepts 10.9.0.0/16 from b, the ranges given", ""},
		{"nothing, if that was given", []netip.Prefix{}, nil, "10.2.0.0/16", nodes, "", "accepts no address from b, the ranges given", ""},
		{"the ranges of the peer's nodes, sorted", nil, nil, "", nodes, "10.2.0.0/24,10.2.1.0/24", "accepts 10.2.0.0/24,10.2.1.0/24 from b, the pod ranges of its nodes", ""},
		{"what was accepted before", nil, nil, "10.2.0.0/16", nodes, "10.2.0.0/16", "", ""},
		{"what was accepted before, although it lacks a node", nil, nil, "10.2.0.0/24", nodes, "10.2.0.0/24", "", ""},
		{"the range that the peer's administrator gave now", nil, prefixes("10.3.0.0/16"), "10.2.0.0/16", Ranges{Pods: prefixes("10.3.0.0/16"), Source: "the pod ranges given"}, "10.3.0.0/16", "accepts 10.3.0.0/16 from b, the pod ranges given", ""},
		{"nothing is known", nil, nil, "", Ranges{}, "", "", "no pod range of cluster b is known"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			peer := &member{Cluster: Cluster{ID: "b", PodCIDRs: c.told, AcceptedCIDRs: c.given}, ranges: c.peer}
			var stored []string
			if c.stored != "" {
				stored = strings.Split(c.stored, ",")
			}
			list, note, err := acceptedFrom(peer, stored)
			accepted := strings.Join(list, ",")
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("got %v, want an error that says %q", err, c.fails)
				}
				return
			}
			if err != nil || accepted != c.accepted || note != c.note {
				t.Errorf("got %q, %q, %v; want %q, %q", accepted, note, err, c.accepted, c.note)
			}
		})
	}
}
