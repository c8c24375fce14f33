// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

// proxied are the clusters whose endpoints stock kube-proxy uses on a node in zone, as its
// documentation has it: those hinted to the zone if every ready one has a hint and some are,
// else all that are ready; if none is, those that are serving and terminating.
func (s *story) proxied(zone string) string {
	var ready, hinted, last []string
	all := true
	for _, slice := range s.v.Current.Slices {
		id := slice.Labels[model.LabelSourceCluster]
		for _, e := range slice.Endpoints {
			switch c := e.Conditions; {
			case ptr.Deref(c.Ready, true):
				ready, all = append(ready, id), all && e.Hints != nil && len(e.Hints.ForZones) > 0
				if e.Hints != nil && slices.Contains(e.Hints.ForZones, discoveryv1.ForZone{Name: zone}) {
					hinted = append(hinted, id)
				}
			case ptr.Deref(c.Serving, false) && ptr.Deref(c.Terminating, false):
				last = append(last, id)
			}
		}
	}
	used := ready
	switch {
	case len(ready) == 0:
		used = last
	case all && len(hinted) > 0:
		used = hinted
	}
	slices.Sort(used)
	return strings.Join(slices.Compact(used), " ")
}

// serves expects the clusters that kube-proxy uses, in every zone.
func (s *story) serves(want string) {
	s.t.Helper()
	for _, zone := range s.v.LocalCluster.Zones {
		if got := s.proxied(zone); got != want {
			s.t.Fatalf("zone %s: kube-proxy uses %q, want %q", zone, got, want)
		}
	}
}

// unready makes the endpoints of a cluster not ready where they are published.
func (s *story) unready(id model.ClusterID) { s.sets(id, false) }

func (s *story) sets(id model.ClusterID, ready bool) {
	published := &s.v.Local.Slices
	if id != s.v.Self {
		published = &s.peer(id).Slices
	}
	(*published)[0] = (*published)[0].DeepCopy()
	(*published)[0].Endpoints[0].Conditions.Ready = &ready
}

// onlyWrites makes what a cluster published stand here, and nothing that follows of it.
func (s *story) onlyWrites(id model.ClusterID, ready bool) {
	for n, slice := range s.v.Current.Slices {
		if slice.Labels[model.LabelSourceCluster] == string(id) {
			s.v.Current.Slices = slices.Clone(s.v.Current.Slices)
			s.v.Current.Slices[n] = slice.DeepCopy()
			s.v.Current.Slices[n].Endpoints[0].Conditions.Ready = &ready
		}
	}
}

var regions = map[model.ClusterID]string{"a": "eu", "b": "eu", "c": "us", "d": "us"}

// inRegions is a story of this cluster and b in one region, and c and d in another one; each
// exports, and a decides.
func inRegions(t *testing.T, tiers string) *story {
	s := newStory(t, "b", "c", "d")
	s.v.LocalCluster.Zones = []string{"z1", "z2"}
	s.v.ClusterLabels = map[string]string{"region": "eu"}
	s.v.Local.Namespace.Annotations = map[string]string{model.AnnotationTiers: tiers}
	for n, id := range []model.ClusterID{"a", "b", "c", "d"} {
		s.publishes(id, at(n-30))
	}
	for id, region := range regions {
		if id != "a" {
			s.label(id, region)
		}
	}
	s.step()
	return s
}

func (s *story) label(id model.ClusterID, region string) {
	s.peer(id).Labels = map[string]string{"region": region}
}

func TestTrafficGoesTierByTier(t *testing.T) {
	s := inRegions(t, "self; region=@SameAsImporter@; *")
	s.serves("a")
	for _, step := range []struct {
		id               model.ClusterID
		ready            bool
		between, settled string
	}{
		{"a", false, "b", "b"},
		{"b", false, "c d", "c d"},
		{"c", false, "d", "d"},
		{"d", false, "", ""},
		{"d", true, "d", "d"},
		{"a", true, "a", "a"},
		{"b", true, "a", "a"},
		{"c", true, "a", "a"},
		{"a", false, "b", "b"},
		{"a", true, "a b", "a"}, // for the time of one write, what served goes on
	} {
		s.sets(step.id, step.ready)
		s.onlyWrites(step.id, step.ready)
		if got := s.proxied("z1"); got != step.between && (got != step.settled || step.ready) {
			t.Errorf("%s is ready: %t: before anything else is written kube-proxy uses %q, want %q", step.id, step.ready, got, step.between)
		}
		s.step()
		s.serves(step.settled)
		if tiers := s.last.Finding.Tiers; model.Join(tiers.From, " ") != step.settled {
			t.Errorf("%s is ready: %t: the condition says that %v serve, want %q", step.id, step.ready, tiers.From, step.settled)
		}
	}
}

// A local endpoint that comes and goes costs one write, however many clusters there are.
func TestTheLastTierIsNotWrittenWhenTheFirstComesAndGoes(t *testing.T) {
	s := inRegions(t, "self; *")
	versions := func() (out []string) {
		for _, slice := range s.v.Current.Slices {
			if slice.Labels[model.LabelSourceCluster] != "a" {
				out = append(out, slice.Name+" "+slice.ResourceVersion)
			}
		}
		slices.Sort(out)
		return out
	}
	before := versions()
	for _, isReady := range []bool{false, true, false} {
		s.sets("a", isReady)
		s.step()
		s.serves(map[bool]string{false: "b c d", true: "a"}[isReady])
		if after := versions(); !slices.Equal(before, after) {
			t.Errorf("a is ready: %t: was %v, is %v", isReady, before, after)
		}
	}
}

func TestOutsideOfTheTiersNothingIsWritten(t *testing.T) {
	s := inRegions(t, "self; region=eu; none")
	s.is("a b c d; ClusterSetIP http/80; from a b")
	s.unready("a")
	s.unready("b")
	s.is("a b c d; ClusterSetIP http/80; from a b")
	s.serves("")
	s.label("c", "eu")
	s.is("a b c d; ClusterSetIP http/80; from a b c")
	s.serves("c")
	s.unread("c") // what its Peer says still holds
	s.label("c", "us")
	s.is("a b c d; ClusterSetIP http/80; from a b")
	s.v.Local.Namespace.Annotations = nil
	s.is("a b c d; ClusterSetIP http/80; from a b d")
	s.serves("d")
}

// A Peer that is missing says nothing of its labels: what was imported stays.
func TestWithoutItsPeerASourceKeepsItsPlace(t *testing.T) {
	s := inRegions(t, "region=eu; none")
	s.gone("b")
	s.unready("a")
	s.is("a b c d; ClusterSetIP http/80; from a b")
	s.serves("b")
}

func TestALostClusterIsNotAvailable(t *testing.T) {
	s := inRegions(t, "region=us; *")
	s.serves("c d")
	for _, id := range []model.ClusterID{"c", "d"} {
		p := s.peer(id)
		p.Liveness = model.Liveness{State: model.Lost, Silent: true, Seen: true, Since: s.v.Now}
	}
	s.step()
	s.serves("a b")
	if got := s.last.Finding.Tiers.String(); got != "tier 2 of 2 (*) serves, from a, b" {
		t.Error(got)
	}
	s.unready("a")
	s.unready("b")
	s.step()
	s.serves("c d") // the last ones stay
}

func TestAnImportWithTiersIsAsItWasAfterARestart(t *testing.T) {
	s := inRegions(t, "self; region=eu; *")
	before := slices.Clone(s.v.Current.Slices)
	exports := slices.Clone(s.v.Peers)
	s.restarts()
	for n := range s.v.Peers {
		s.v.Peers[n].Labels = exports[n].Labels
	}
	s.step()
	s.serves("a")
	for n := range s.v.Peers { // no heartbeat was seen yet
		s.v.Peers[n], s.v.Peers[n].Liveness = exports[n], model.Liveness{State: model.Connected}
	}
	s.step()
	for n, slice := range s.v.Current.Slices {
		if slice.ResourceVersion != before[n].ResourceVersion {
			t.Errorf("the slice of %s was written", slice.Labels[model.LabelSourceCluster])
		}
	}
	for _, source := range s.last.Finding.Sources {
		if source.Down {
			t.Errorf("%s is down", source.Cluster)
		}
	}
}

func TestTiersWithoutZonesAreMadeOfReadiness(t *testing.T) {
	s := inRegions(t, "self; region=eu; *")
	s.v.LocalCluster.Zones = nil
	s.step()
	for _, want := range []string{"a", "b", "c d"} {
		if got := s.proxied("any"); got != want {
			t.Errorf("kube-proxy uses %q, want %q", got, want)
		}
		for _, id := range strings.Fields(want) {
			s.unready(model.ClusterID(id))
		}
		s.step()
	}
	if limit := s.last.Finding.Tiers.Limit; !strings.Contains(limit, "no Node of this cluster has a zone") {
		t.Errorf("limit %q", limit)
	}
}

// Whatever is ready, read and lost: of the sources in a tier, kube-proxy uses only those of the
// first tier with one that is ready and not lost; nothing outside is written; and it uses some
// if one of any tier is ready.
func TestKubeProxyUsesTheFirstTier(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.SampledFrom([]string{"self; region=eu; *", "self; *", "self; region=eu; none", "region=us; none", "region=us; self; none", "*", "none"}).Draw(r, "tiers")
		s := inRegions(t, text)
		if rapid.IntRange(0, 3).Draw(r, "zones") == 0 {
			s.v.LocalCluster.Zones = nil
		}
		tiers := tiersFrom(r, text)
		for range rapid.IntRange(1, 4).Draw(r, "steps") {
			var some, best []string
			first := len(tiers.Texts())
			for _, id := range []model.ClusterID{"a", "b", "c", "d"} {
				isReady, isLost := rapid.Bool().Draw(r, "ready"), id != "a" && rapid.IntRange(0, 3).Draw(r, "lost") == 0
				s.sets(id, isReady)
				if id != "a" {
					p := s.peer(id)
					p.Liveness = connected
					if isLost {
						p.Liveness = model.Liveness{State: model.Lost, Silent: true, Seen: true, Since: s.v.Now}
					}
				}
				place, in := tiers.TierOf(model.ClusterLabels{ID: id, Labels: map[string]string{"region": regions[id]}, Known: true}, s.v.self())
				if !in || !isReady {
					continue
				}
				if some = append(some, string(id)); isLost || place > first {
					continue
				}
				if place < first {
					first, best = place, nil
				}
				best = append(best, string(id))
			}
			s.step()
			for _, slice := range s.v.Current.Slices {
				id := model.ClusterID(slice.Labels[model.LabelSourceCluster])
				if _, in := tiers.TierOf(model.ClusterLabels{ID: id, Labels: map[string]string{"region": regions[id]}, Known: true}, s.v.self()); !in {
					r.Fatalf("a slice of %s is written", id)
				}
			}
			if got, want := s.proxied("z1"), strings.Join(best, " "); best != nil && got != want || best == nil && (got == "") != (some == nil) {
				r.Fatalf("kube-proxy uses %q, want %q of %v", got, want, some)
			}
		}
	})
}
