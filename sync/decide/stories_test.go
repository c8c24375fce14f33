// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

func TestANewClusterJoinsLastAndIsServed(t *testing.T) {
	s := newStory(t, "b")
	s.publishes("b", at(-30))
	s.step()
	s.after(time.Hour)
	s.v.Peers = append(s.v.Peers, exchange.Published{Known: true, Member: model.Member{ID: "c", Liveness: model.Liveness{State: model.Connected}}})
	s.is("b; ClusterSetIP http/80; from b") // it is not waited for
	s.publishes("c", at(-60))
	s.is("b c; ClusterSetIP http/80; from b c")
	if len(s.last.Joined) != 0 {
		t.Error("an event for what is stored")
	}
	// One that differs, and is younger, waits for nothing.
	s.v.Peers = append(s.v.Peers, exchange.Published{Known: true, Member: model.Member{ID: "d"}})
	s.publishes("d", at(50), port("metrics", 90))
	if d := Import(s.view()); len(d.Joined) != 1 || d.Joined[0].Cluster != "d" {
		t.Errorf("joined %v", d.Joined)
	}
	s.is("b c d; ClusterSetIP http/80 metrics/90; from b c d")
}

// FAULT 42: a cluster is destroyed, and made again with the same id and manifests. Its UIDs
// are others, and so are the creation times; a member that waits gains nothing.
// The command of condition TakeoverHeld reads the ages in the list.
func TestAnExportThatClaimsAnotherAgeHasItInTheList(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-10))
	s.publishes("c", at(-5), headless)
	s.step()
	s.publishes("c", long, headless)
	s.step()
	if got := len(s.last.Finding.Takeovers); got != 1 {
		t.Errorf("%d takeovers are held, want 1", got)
	}
	older := plan.StoredList(s.v.Current, web).Older()
	if len(older) != 1 || older[0].Cluster != "c" {
		t.Errorf("the list has %v as older exports, want that of c", older)
	}
}

func TestAClusterThatIsMadeAgainKeepsItsPlace(t *testing.T) {
	for name, others := range map[string]func(*story){
		"it is alone":            func(*story) {},
		"another serves":         func(s *story) { s.publishes("d", at(-20)) },
		"one waits":              func(s *story) { s.after(time.Hour); s.step(); s.publishes("c", long, headless) },
		"the other is made, too": func(s *story) { s.publishes("d", at(-20)); s.step(); s.unread("d") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, "b", "c", "d")
			s.publishes("b", at(-30))
			s.step()
			others(s)
			s.step()
			before, ip := s.state(), s.ip()
			s.unread("b")
			s.step()
			s.after(time.Hour)
			s.loses("b")
			s.peer("b").Synced = true // join --replace, before the manifests
			s.step()
			s.after(time.Minute)
			s.publishes("b", at(121), uid("anew"))
			s.step()
			if p := s.peer("d"); !p.Synced {
				s.publishes("d", at(122), uid("d-anew"))
				s.is("b d; ClusterSetIP http/80; from b d")
			} else {
				s.is(before)
			}
			if s.ip() != ip || s.last.Finding.Freeze != nil {
				t.Errorf("the clusterset IP was %s and is %s, frozen %+v", ip, s.ip(), s.last.Finding.Freeze)
			}
		})
	}
}

// FAULT 48: the decider's cluster is gone for good, the agent restarts, and another
// exporter adds a port. The condition says by whom the import is frozen; each of the two
// commands ends it.
func TestADeciderThatIsGoneForGood(t *testing.T) {
	both := func(e *model.Export) {
		e.Ports = append(e.Ports, publishedBy("c", at(0), port("metrics", 90)).Ports...)
	}
	for name, ends := range map[string]struct {
		by   func(*story)
		want string
	}{
		"leave --id": {func(s *story) {
			s.v.Peers = s.v.Peers[:1]
			s.v.Peers = append(s.v.Peers, exchange.Published{Removed: true, Member: model.Member{ID: "b"}})
		}, "c; ClusterSetIP http/80 metrics/90; from c"},
		"confirm takeover, while frozen": {func(s *story) { s.confirms("c/of-c") }, "c b; ClusterSetIP http/80 metrics/90; from b c"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, "c", "b")
			s.publishes("b", at(-30))
			s.publishes("c", at(-20))
			s.step()
			ip := s.ip()
			s.after(time.Hour)
			s.gone("b")
			s.restarts()
			s.peer("b").Liveness = model.Liveness{State: model.Lost}
			s.is("b c; ClusterSetIP http/80; from b c; frozen by b: NotRead")
			s.publishes("c", at(-20), both)
			s.is("b c; ClusterSetIP http/80; from b c; frozen by b: NotRead, which others wait for")
			if why := s.last.Finding.Freeze.By.Why; why != "there is no Peer b" {
				t.Errorf("says %q", why)
			}
			ends.by(s)
			s.is(ends.want)
			if s.ip() != ip {
				t.Errorf("the clusterset IP was %s and is %s", ip, s.ip())
			}
		})
	}
}

// The number of a port is changed everywhere: each cluster deletes and creates its Service,
// which suspends its export.
func TestAPortThatIsChangedEverywhere(t *testing.T) {
	changes := func(s *story, id model.ClusterID) {
		s.withdraws(id, true)
		s.step()
		s.after(2 * time.Second)
		s.publishes(id, at(-30), port("http", 8080))
		s.step()
	}
	begin := func(t *testing.T) *story {
		s := newStory(t, "b", "c")
		s.publishes("b", at(-30))
		s.publishes("c", at(-30))
		s.step()
		s.after(time.Hour)
		return s
	}
	t.Run("within seconds, the decider first", func(t *testing.T) {
		s := begin(t)
		ip := s.ip()
		changes(s, "b")
		changes(s, "c")
		s.is("b c; ClusterSetIP http/8080; from b c")
		if s.ip() != ip {
			t.Error("another clusterset IP")
		}
	})
	t.Run("within seconds, the decider last", func(t *testing.T) {
		s := begin(t)
		changes(s, "c")
		changes(s, "b")
		s.is("b c; ClusterSetIP http/8080; from b c")
	})
	t.Run("an hour apart", func(t *testing.T) {
		s := begin(t)
		changes(s, "c")
		s.is("b c; ClusterSetIP http/80; from b") // as two clusters in conflict always did
		s.after(time.Hour)
		changes(s, "b")
		s.is("b c; ClusterSetIP http/8080; from b c")
	})
	t.Run("the Service of the decider is missing for an hour", func(t *testing.T) {
		s := begin(t)
		s.withdraws("b", true)
		s.step()
		s.after(time.Hour)
		s.publishes("b", at(-30), port("http", 8080))
		s.is("c b; ClusterSetIP http/80; from c; held b over c: ports")
		changes(s, "c")
		s.is("c b; ClusterSetIP http/8080; from b c")
	})
}

func TestAPolicyFromDenyToAllow(t *testing.T) {
	denied := &decision.Verdict{Outcome: decision.Denied}
	s := newStory(t, "b")
	s.publishes("b", at(-30))
	s.step()
	ip := s.ip()
	s.peer("b").Verdict = denied
	s.is("b(Refused); no import")
	s.after(time.Hour)
	s.is("b(Refused); no import")
	s.restarts()
	s.is("b(Refused); no import")
	s.publishes("b", at(-30))
	s.peer("b").Verdict = &decision.Verdict{Problem: "not loaded"}
	s.is("b(Refused); no import")
	s.peer("b").Verdict = &decision.Verdict{Outcome: decision.Allowed}
	s.is("b; ClusterSetIP http/80; from b")
	if s.ip() != ip {
		t.Errorf("the clusterset IP was %s and is %s", ip, s.ip())
	}
}

func TestOnlyEndedEntriesKeepNoAddress(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30))
	s.publishes("c", at(-20))
	s.step()
	s.withdraws("c", true)
	s.step()
	s.after(time.Hour)
	s.deletes("b")
	s.is("b(Ended) c(Suspended); no import")
	s.after(time.Minute)
	s.is("c(Suspended); no import")
	s.publishes("c", at(-20))
	s.is("c; ClusterSetIP http/80; from c")
	s.deletes("c")
	s.is("; no import")
	if len(s.v.Current.Services) > 0 {
		t.Error("the derived Service stays")
	}
}

// FAULTS 26, 41: nothing goes, however long a cluster is not read or its records are away.
func TestNothingGoesThatWasNotStated(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30))
	s.publishes("c", at(-20))
	s.step()
	const serves = "ClusterSetIP http/80; from b c"
	for _, change := range []struct {
		what string
		do   func()
		want string
	}{
		{"the exchange namespace is deleted", func() { s.loses("b") }, "b(Missing) c; " + serves + "; frozen by b: Missing"},
		{"both are", func() { s.loses("c") }, "b(Missing) c(Missing); " + serves + "; frozen by b: Missing"},
		{"the Peers are deleted", func() { s.gone("b"); s.gone("c") }, "b(Missing) c(Missing); " + serves + "; frozen by b: NotRead"},
		{"the agent restarts", func() { s.restarts() }, "b(Missing) c(Missing); " + serves + "; frozen by b: NotRead"},
		{"c is back", func() { s.publishes("c", at(-20)) }, "b(Missing) c; " + serves + "; frozen by b: NotRead"},
		{"b is back", func() { s.publishes("b", at(-30)) }, "b c; " + serves},
	} {
		change.do()
		s.step()
		s.after(20 * time.Minute)
		s.step()
		if got := s.state(); got != change.want {
			t.Fatalf("%s:\n got %s\nwant %s", change.what, got, change.want)
		}
	}
}

// Nothing that stands changes until a list exists: the agent waits ten seconds for members
// that do not answer.
func TestAListFormsWhenAllWereReadOrAfterTenSeconds(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30))
	s.publishes("c", at(-40))
	s.step()
	s.after(time.Hour)
	s.restarts()
	for _, o := range s.v.Current.Services { // somebody removed the list
		delete(o.Annotations, model.AnnotationList)
	}
	s.v.Current.Import.Annotations[model.AnnotationList] = "rubbish"
	s.publishes("b", at(-30), headless)
	before := len(s.v.Current.Slices)
	d := Import(s.view())
	if d.Write || d.Again != 10*time.Second {
		t.Errorf("write is %v, again after %s", d.Write, d.Again)
	}
	s.after(10 * time.Second)
	s.unread("c")
	s.step()
	if got := s.state(); got != "c b; ClusterSetIP http/80; from b c; frozen by c: NotRead, which others wait for" || len(s.v.Current.Slices) != before {
		t.Errorf("got %s", got)
	}
	s.publishes("c", at(-40))
	s.is("c b; ClusterSetIP http/80; from b c")
	// All are read: a new import does not wait.
	s = newStory(t, "b", "c")
	s.restarts()
	s.publishes("b", at(-30))
	if d := Import(s.view()); d.Write {
		t.Error("c may be older")
	}
	s.publishes("c", at(-40), headless)
	s.is("c b; Headless http/80; from b c")
}

func TestANamespaceThatIsMadeAgain(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30))
	s.step()
	s.after(time.Hour)
	s.publishes("c", long, headless)
	s.step()
	there := s.v.Local.Namespace
	s.v.Local.Namespace, s.v.Current = nil, newStory(t).v.Current
	s.step()
	if s.last.Write {
		t.Errorf("%+v", s.last)
	}
	s.after(5 * time.Minute)
	s.v.Local.Namespace = there
	s.is("c b; Headless http/80; from b c") // docs/security.md: it forms another list
}

// Two clusters of one id: the Peer refuses the second one, whose export is not read.
func TestAClusterThatIsRefusedForItsUIDKeepsWhatIsImported(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30))
	s.publishes("c", at(-20))
	s.step()
	s.unread("b")
	s.peer("b").Liveness = model.Liveness{State: model.Connected, Message: "the cluster has another UID"}
	s.is("b c; ClusterSetIP http/80; from b c; frozen by b: NotRead")
	// This cluster's own id is the one in doubt.
	s = newStory(t, "b")
	s.publishes("a", at(-30))
	s.publishes("b", at(-20))
	s.step()
	s.v.Own = OwnSource{State: model.SourceNotRead, Why: "Peer a has this cluster's id"}
	s.is("a b; ClusterSetIP http/80; from a b; frozen by a: NotRead")
}

// Objects of the Sveltos pipeline are adopted in place. b, which it serves, is a member that
// does not answer.
func TestAnImportOfThePipelineIsAdoptedOnceItsMembersWereRead(t *testing.T) {
	s := newStory(t, "b", "c")
	derived := model.DerivedName(web.Name)
	labels := map[string]string{model.LabelServiceName: web.Name, model.LabelServiceImported: "true", "app.kubernetes.io/managed-by": "sveltos"}
	meta := metav1.ObjectMeta{Namespace: web.Namespace, Name: derived, UID: "1", ResourceVersion: "1", Labels: labels}
	policy := corev1.IPFamilyPolicySingleStack
	s.v.Current.Services = []*corev1.Service{{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, IPFamilies: []corev1.IPFamily{"IPv4"}, IPFamilyPolicy: &policy, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}}
	s.v.Current.Import = &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name, UID: "2", Annotations: map[string]string{model.AnnotationDerivedName: derived}},
		Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.0.0.1"}, Ports: []mcsv1beta1.ServicePort{{Name: "http", Port: 80}}}}
	slice := func(id string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: derived + "-" + id, Labels: map[string]string{
			model.LabelServiceName: web.Name, discoveryv1.LabelServiceName: derived, discoveryv1.LabelManagedBy: "sveltos",
		}}}
	}
	s.v.Current.Slices, s.v.Takeover = []*discoveryv1.EndpointSlice{slice("b"), slice("x")}, true
	s.unread("b")
	s.publishes("c", at(-20), port("http", 81))
	if planned := plan.Import(Import(s.view()).Plan); slices.ContainsFunc(planned.Actions, func(a plan.Action) bool { return a.Source != "c" }) {
		t.Errorf("while b is unread: %v", planned.Actions)
	}
	s.publishes("b", at(-30))
	if d := Import(s.view()); d.Plan.List.Entries[0].Cluster != "b" || len(plan.Import(d.Plan).Actions) < 3 {
		t.Errorf("list %v, %v", d.Plan.List, plan.Import(d.Plan).Actions)
	}
	s.gone("b") // it is no member: nothing waits for it, and its slice stays
	if d := Import(s.view()); d.Finding.Freeze != nil {
		t.Errorf("frozen by %+v", d.Finding.Freeze)
	}
}

// A name that is not free, or a family that this cluster has not: only the ServiceImport has
// the list.
func TestAnImportWithoutAServiceHasItsListInTheServiceImport(t *testing.T) {
	ipv6 := func(e *model.Export) { e.IPFamilies = []corev1.IPFamily{"IPv6"} }
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30), ipv6)
	s.publishes("c", at(-20), ipv6)
	s.step()
	if got := s.state(); got != "b c; ClusterSetIP http/80" || len(s.v.Current.Services) > 0 {
		t.Errorf("got %s", got)
	}
	s.after(time.Hour)
	s.deletes("b")
	s.is("b(Ended) c; ClusterSetIP http/80; frozen by b: Ended")
	s.restarts()
	s.publishes("c", at(-20), ipv6)
	s.after(time.Minute)
	s.is("c; ClusterSetIP http/80")
}

// FAULT 27: this cluster is started with the id of another one.
func TestTheOwnEntryKeepsItsIDWhileTheOwnIDMayBeThatOfAnother(t *testing.T) {
	s := newStory(t)
	s.exportsHere(publishedBy("a", at(-1)))
	s.is("a; ClusterSetIP http/80; from a")
	s.v.Self, s.v.Own = "b", OwnSource{State: model.SourceNotRead, Why: "a Peer has this id"}
	if IsListedAsOwn(&s.v) {
		t.Error("the list has it under the new id")
	}
	ReadList(&s.v)
	s.step()
	if got := s.list(); got != "a" {
		t.Errorf("the list is %q", got)
	}
	// The cluster has another id for good.
	s.v.Own.State = model.SourcePublished
	s.step()
	if got := s.list(); got != "b" {
		t.Errorf("the list is %q", got)
	}
}

// FAULT 38: two clusters had one id, and this one got another.
func TestTheOwnEntryFollowsTheOwnIDAlsoIfAMemberHasTheOneBefore(t *testing.T) {
	s := newStory(t)
	s.exportsHere(publishedBy("a", at(-1)))
	s.step()
	s.v.Self = "b"
	s.v.Peers = append(s.v.Peers, exchange.Published{Member: model.Member{ID: "a"}, Known: true})
	s.step()
	if got := s.list(); got != "b" {
		t.Errorf("while the member is not read, the list is %q", got)
	}
	s.publishes("a", at(0), uid("of-another"))
	s.is("b a; ClusterSetIP http/80; from a b")
}

// A member that publishes an export with the UID of this cluster's own keeps its entry.
func TestAMemberThatClaimsTheUIDOfTheOwnExportKeepsItsEntry(t *testing.T) {
	s := newStory(t, "b")
	own := publishedBy("a", at(0))
	s.publishes("b", at(-30), uid(own.UID))
	s.is("b; ClusterSetIP http/80; from b")
	published := *s.peer("b")
	s.exportsHere(own)
	s.v.Own = OwnSource{State: model.SourceSuspended}
	s.loses("b")
	s.is("b(Missing); ClusterSetIP http/80; from b; frozen by b: Missing")
	*s.peer("b") = published
	s.v.Own.State = model.SourcePublished
	s.is("b a; ClusterSetIP http/80; from a b")
	s.loses("b")
	s.is("b(Missing) a; ClusterSetIP http/80; from a b; frozen by b: Missing")
}

// The Service is replaced, because the next export has another type, and the copy of the list
// is older: the agent stopped before it wrote it. What was confirmed stays so.
func TestAConfirmationOutlivesTheServiceThatIsReplaced(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30), headless)
	s.publishes("c", at(-20))
	s.step()
	before := s.v.Current.Import
	s.loses("b")
	s.step()
	s.v.Current.Import = s.v.Current.Import.DeepCopy()
	s.v.Current.Import.Annotations[model.AnnotationList] = before.Annotations[model.AnnotationList]
	s.peer("b").ConfirmMissingBefore = s.v.Now
	s.after(time.Minute)
	s.is("c; ClusterSetIP http/80; from c")
}
