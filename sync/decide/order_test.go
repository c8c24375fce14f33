// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"github.com/comity-mcs/comity/sync/model"
)

// FAULT 39: a takeover is held; then the export that decides is deleted and created again.
func TestAHeldTakeoverGainsNothingWhenTheDeciderIsDeletedAndCreated(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30))
	s.publishes("a", at(-25))
	s.is("b a; ClusterSetIP http/80; from a b")
	ip := s.ip()
	s.after(time.Hour)
	s.publishes("c", long, headless)
	s.is("b a c; ClusterSetIP http/80; from a b c; held c over b: type")
	s.deletes("b")
	s.is("b(Ended) a c; ClusterSetIP http/80; from a c; frozen by b: Ended; held c over a: type")
	s.after(6 * time.Second)
	s.publishes("b", at(60), uid("anew"))
	s.is("b a c; ClusterSetIP http/80; from a b c; held c over b: type")
	if s.ip() != ip {
		t.Errorf("the clusterset IP was %s and is %s", ip, s.ip())
	}
}

// FAULT 39, where nobody else serves: the one that waits is all there is meanwhile.
func TestAHeldTakeoverGainsNothingWhereTheDeciderIsAlone(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30))
	s.step()
	ip := s.ip()
	s.after(time.Hour)
	s.publishes("c", long, headless)
	s.is("b c; ClusterSetIP http/80; from b c; held c over b: type")
	s.deletes("b")
	s.is("b(Ended) c; ClusterSetIP http/80; from c; frozen by b: Ended, which others wait for")
	s.after(6 * time.Second)
	s.publishes("b", at(60), uid("anew"))
	s.is("b c; ClusterSetIP http/80; from b c; held c over b: type")
	// It is gone for good: the next one decides.
	s.deletes("b")
	s.step()
	s.after(time.Minute)
	s.is("c; Headless http/80; from c")
	if ip == "" {
		t.Error("there was no address")
	}
}

// FAULT 39, where all others are deleted and created at once.
func TestAHeldTakeoverGainsNothingWhenAllAreDeletedAndCreated(t *testing.T) {
	s := newStory(t, "b", "c", "d")
	s.publishes("b", at(-30))
	s.publishes("d", at(-25))
	s.step()
	s.after(time.Hour)
	s.publishes("c", long, headless)
	s.is("b d c; ClusterSetIP http/80; from b c d; held c over b: type")
	s.deletes("b")
	s.deletes("d")
	s.step()
	s.after(5 * time.Second)
	s.publishes("d", at(61), uid("d-anew"))
	s.is("b(Ended) d c; ClusterSetIP http/80; from c d; frozen by b: Ended; held c over d: type")
	s.publishes("b", at(61), uid("b-anew"))
	s.is("b d c; ClusterSetIP http/80; from b c d; held c over b: type")
}

// FAULT 40: within two minutes of a new export, another member publishes it, dated back.
func TestABackdatedExportDoesNotDecideAnImportThatJustFormed(t *testing.T) {
	s := newStory(t, "b", "c", "d")
	s.publishes("b", at(-1))
	s.is("b; ClusterSetIP http/80; from b")
	ip := s.ip()
	s.after(time.Minute)
	s.publishes("c", long, headless)
	s.is("b c; ClusterSetIP http/80; from b c; held c over b: type")
	// Its records disappear: the import stays as it is, and so does the address.
	s.loses("c")
	s.is("b c(Missing); ClusterSetIP http/80; from b c")
	s.peer("c").ConfirmMissingBefore = s.v.Now
	s.is("b; ClusterSetIP http/80; from b")
	// One with a plausible age takes its place.
	s.publishes("d", at(-2), headless)
	s.is("d b; Headless http/80; from b d")
	if ip == "" {
		t.Error("there was no address")
	}
}

// The clock went back by an hour, and an export claims to be as old as the list.
func TestAClockThatGoesBackOpensNoPlaceByAge(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(1))
	s.step()
	s.after(-time.Hour)
	s.publishes("c", at(0), headless)
	s.is("b c; ClusterSetIP http/80; from b c; held c over b: type")
	// Nor does it freeze the import for an hour.
	s.after(time.Hour)
	s.deletes("b")
	s.step()
	s.after(-time.Hour)
	s.step()
	s.after(time.Minute)
	s.is("c; Headless http/80; from c")
}

// GitOps makes one export everywhere, in any order; c is in conflict.
func TestThreeClustersThatCreateOneExportWithin30Seconds(t *testing.T) {
	for name, order := range map[string][]model.ClusterID{"oldest first": {"b", "c", "d"}, "youngest first": {"d", "c", "b"}, "the one in conflict first": {"c", "d", "b"}} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, "b", "c", "d")
			created := map[model.ClusterID]time.Time{"b": at(0), "c": at(0).Add(15 * time.Second), "d": at(0).Add(30 * time.Second)}
			for _, id := range order {
				if id == "c" {
					s.publishes(id, created[id], port("http", 81))
				} else {
					s.publishes(id, created[id])
				}
				s.step()
				s.after(15 * time.Second)
			}
			s.is("b c d; ClusterSetIP http/80; from b d")
		})
	}
}

func TestAConfirmedTakeover(t *testing.T) {
	begin := func(t *testing.T) *story {
		s := newStory(t, "b", "c", "d")
		s.publishes("b", at(-30))
		s.step()
		s.after(time.Hour)
		s.publishes("c", long, headless)
		s.publishes("d", at(50), port("http", 81))
		s.is("b c d; ClusterSetIP http/80; from b c; held c over b: type")
		return s
	}
	problems := func(s *story) int {
		n := 0
		for _, p := range s.last.Finding.Problems {
			if p.Reason == model.ReasonInvalidAnnotation {
				n++
			}
		}
		return n
	}
	t.Run("decides from then on, also after a restart", func(t *testing.T) {
		s := begin(t)
		s.confirms("c/of-c")
		s.is("c b d; Headless http/80; from b c")
		s.after(time.Hour)
		s.restarts()
		s.step()
		if s.list() != "c b d" || problems(s) > 0 {
			t.Errorf("list %s, problems %+v", s.list(), s.last.Finding.Problems)
		}
		s.publishes("b", at(-30))
		s.publishes("c", long, headless)
		s.publishes("d", at(50), port("http", 81))
		s.is("c b d; Headless http/80; from b c")
	})
	t.Run("can be that of a younger one", func(t *testing.T) {
		s := begin(t)
		s.confirms("d/of-d")
		s.is("d b c; ClusterSetIP http/81; from d; held c over d: ports type; held b over d: ports")
	})
	for name, id := range map[string]string{"another UID": "c/other", "another cluster": "d/of-c", "a UID alone": "of-c", "no cluster": "/of-c", "rubbish": "\x1b[31m"} {
		t.Run("has no effect with "+name, func(t *testing.T) {
			s := begin(t)
			s.confirms(id)
			s.is("b c d; ClusterSetIP http/80; from b c; held c over b: type")
			if problems(s) != 1 {
				t.Errorf("problems %+v", s.last.Finding.Problems)
			}
		})
	}
	t.Run("has no effect in a ServiceImport of somebody else", func(t *testing.T) {
		s := begin(t)
		s.confirms("c/of-c")
		s.v.Current.Import.ManagedFields = nil
		if d := Import(s.view()); d.Plan.List.Entries[0].Cluster != "b" {
			t.Errorf("list %v", d.Plan.List)
		}
	})
	t.Run("ends with the export", func(t *testing.T) {
		s := begin(t)
		s.confirms("c/of-c")
		s.step()
		s.deletes("c")
		s.step()
		s.after(time.Minute)
		s.is("b d; ClusterSetIP http/80; from b")
	})
}

// What is held, and what is not.
func TestWhichTakeoversAreHeld(t *testing.T) {
	more := func(e *model.Export) {
		e.Ports = append(e.Ports, publishedBy("c", at(0), port("metrics", 90)).Ports...)
	}
	for name, c := range map[string]struct {
		change func(*story)
		want   string
	}{
		"FAULT 28: one that claims to be older": {func(s *story) { s.publishes("c", long, headless, port("x", 80)) }, "b d c; ClusterSetIP http/80; from b d; held c over b: ports type"},
		"one that agrees":                       {func(s *story) { s.publishes("c", long) }, "b d c; ClusterSetIP http/80; from b c d"},
		"one that agreed first": {func(s *story) { s.publishes("c", long); s.step(); s.publishes("c", long, headless) },
			"b d c; ClusterSetIP http/80; from b c d; held c over b: type"},
		"one that dates itself back later": {func(s *story) { s.publishes("c", at(50), headless); s.step(); s.publishes("c", long, headless) },
			"b d c; ClusterSetIP http/80; from b c d; held c over b: type"},
		"a younger one":       {func(s *story) { s.publishes("c", at(50), headless) }, "b d c; ClusterSetIP http/80; from b c d"},
		"one with more ports": {func(s *story) { s.publishes("c", long, more) }, "b d c; ClusterSetIP http/80 metrics/90; from b c d"},
		"one older than the second, which added a port": {func(s *story) {
			s.publishes("d", at(-20), more)
			s.step()
			s.publishes("c", at(-25), port("metrics", 91))
		}, "b d c; ClusterSetIP http/80 metrics/90; from b d; held c over d: ports"},
		"two": {func(s *story) { s.publishes("c", long, headless); s.publishes("e", at(-50), port("http", 81)) },
			"b d c e; ClusterSetIP http/80; from b c d; held c over b: type; held e over b: ports"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, "b", "c", "d", "e")
			s.publishes("b", at(-30))
			s.publishes("d", at(-20))
			s.step()
			s.after(time.Hour)
			c.change(s)
			s.is(c.want)
		})
	}
}

// While an entry before it freezes the import, an export that replaces another one changes
// nothing, so its entry keeps its place.
func TestWhatIsReplacedWhileTheImportIsFrozenKeepsItsPlace(t *testing.T) {
	s := newStory(t, "b", "c", "d")
	s.publishes("b", at(-30))
	s.publishes("c", at(-20))
	s.publishes("d", at(-10))
	s.step()
	s.unread("b")
	s.publishes("c", at(-20), uid("anew"), headless)
	s.is("b c d; ClusterSetIP http/80; from b c d; frozen by b: NotRead, which others wait for")
}
