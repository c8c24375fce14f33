// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

// ours is the metadata of an object that Comity applied.
func ours(name string, labels map[string]string, others ...metav1.ManagedFieldsEntry) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: web.Namespace, Name: name, Labels: labels, ResourceVersion: "7",
		ManagedFields: append([]metav1.ManagedFieldsEntry{{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply}}, others...),
	}
}

func derivedSlice(from string, change ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: ours("derived-1-"+from, map[string]string{model.LabelSourceCluster: from}),
		Ports:      []discoveryv1.EndpointPort{{Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func endpoint(address string, ready *bool) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ready}})
	}
}

func foreign(s *discoveryv1.EndpointSlice) { s.ManagedFields = nil }

func TestTargetsAreTheEndpointsThatWereReady(t *testing.T) {
	no, yes := ptr.To(false), ptr.To(true)
	udp := func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = ptr.To(corev1.ProtocolUDP) }
	for name, tc := range map[string]struct {
		published, applied []*discoveryv1.EndpointSlice
		want               []string
	}{
		"what it published, whatever was withdrawn here": {
			published: []*discoveryv1.EndpointSlice{derivedSlice("b", endpoint("10.0.0.1", yes), endpoint("10.0.0.2", no), endpoint("fd00::1", nil))},
			applied:   []*discoveryv1.EndpointSlice{derivedSlice("b", endpoint("10.0.0.9", no))},
			want:      []string{"10.0.0.1:8080", "[fd00::1]:8080"},
		},
		"what is applied here of a cluster that was not read": {
			applied: []*discoveryv1.EndpointSlice{derivedSlice("b", endpoint("10.0.0.1", yes), endpoint("10.0.0.2", no)), derivedSlice("c", endpoint("10.0.1.1", yes))},
			want:    []string{"10.0.0.1:8080"},
		},
		"all, where all were withdrawn already": {
			applied: []*discoveryv1.EndpointSlice{derivedSlice("b", endpoint("10.0.0.1", no), endpoint("10.0.0.2", no))},
			want:    []string{"10.0.0.1:8080", "10.0.0.2:8080"},
		},
		"none of somebody else's": {applied: []*discoveryv1.EndpointSlice{derivedSlice("b", foreign, endpoint("10.0.0.1", yes))}},
		"none without a TCP port": {applied: []*discoveryv1.EndpointSlice{derivedSlice("b", udp, endpoint("10.0.0.1", yes))}},
	} {
		t.Run(name, func(t *testing.T) {
			i := newImporting(ImportView{Local: LocalExport{Namespace: &corev1.Namespace{}}, Current: plan.Current{Slices: tc.applied}, Peers: []exchange.Published{{Member: model.Member{ID: "b"}}}})
			i.sources["b"] = source{Source: model.Source{State: model.SourceMissing}}
			d := ImportDecision{Plan: plan.ImportInput{Key: web, Sources: map[model.ClusterID][]*discoveryv1.EndpointSlice{"b": tc.published}}}
			i.direct(&d)
			var got []string
			for _, target := range d.Probe["b"] {
				got = append(got, target.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What no heartbeat speaks for is probed; its endpoints are down if they do not answer.
func TestOnlyWhatNoHeartbeatSpeaksForIsProbed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*story)
		probed bool
	}{
		"without a Peer":        {func(s *story) { s.gone("b"); s.probed(false, "b") }, true},
		"missing":               {func(s *story) { s.loses("b") }, true},
		"lost, and read before": {func(s *story) { s.peer("b").Liveness.State = model.Lost }, false},
		"lost, and not read":    {func(s *story) { s.unread("b") }, false},
		"suspended":             {func(s *story) { s.withdraws("b", true); s.peer("b").Liveness.State = model.Lost }, false},
		"read":                  {func(*story) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, "b", "c")
			s.publishes("b", at(-30))
			s.publishes("c", at(-20))
			s.step()
			s.probed(false, "b", "c")
			tc.change(s)
			s.step()
			want := map[model.ClusterID]model.Traffic{}
			if tc.probed {
				want["b"] = model.Unanswered
			}
			if got := s.last.Plan.Traffic; (len(s.last.Probe["b"]) == 1) != tc.probed || len(s.last.Probe["c"]) > 0 || !maps.Equal(got, want) {
				t.Errorf("probed %v, traffic %v, want %v", s.last.Probe, got, want)
			}
			if !tc.probed {
				return
			}
			s.probed(true, "b")
			s.step()
			if len(s.last.Plan.Traffic) > 0 {
				t.Errorf("it answers, and traffic is %v", s.last.Plan.Traffic)
			}
		})
	}
}

func TestHowTheEndpointsOfASourceAreUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		down, drained, forced bool
		choice                model.OnLost
		want                  model.Traffic
	}{
		"well":                          {false, false, false, model.OnLostWithdrawUnlessLast, model.Served},
		"down":                          {true, false, false, model.OnLostWithdrawUnlessLast, model.Unanswered},
		"down, and to be withdrawn":     {true, false, false, model.OnLostWithdraw, model.Withheld},
		"down, and to be kept":          {true, false, false, model.OnLostKeep, model.Served},
		"drained":                       {false, true, false, model.OnLostKeep, model.LastResort},
		"drained by force":              {false, true, true, model.OnLostKeep, model.Withheld},
		"drained and down":              {true, true, false, model.OnLostWithdrawUnlessLast, model.Unanswered},
		"drained, down, and to be kept": {true, true, false, model.OnLostKeep, model.LastResort},
	} {
		if got := trafficOf(tc.down, tc.drained, tc.forced, tc.choice); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// b is drained, alone or beside a cluster that is lost, and the agent restarts.
func TestADrainedCluster(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30))
	s.publishes("c", at(-20))
	s.step()
	drains := []model.Drain{{Drained: model.Drained{Since: metav1.NewTime(s.v.Now)}}}
	is := func(when, unready string, drained bool) {
		t.Helper()
		s.step()
		b, _ := s.last.Finding.Source("b")
		if s.notReady() != unready || b.Drained != drained || b.Down || len(s.last.Probe) > 0 {
			t.Errorf("%s: not ready: %q, want %q; %+v, probed %v", when, s.notReady(), unready, b, s.last.Probe)
		}
	}
	s.peer("b").Drains = drains
	is("drained", "b", true)
	s.restarts()
	s.publishes("c", at(-20))
	s.peer("b").Drains = drains
	is("after a restart, not read yet", "b", true)
	s.publishes("b", at(-30))
	is("read again", "b", true)
	s.deletes("c")
	is("nobody else serves", "", true)
	s.publishes("c", at(-20))
	s.peer("c").Liveness = model.Liveness{State: model.Lost, Silent: true, Seen: true}
	is("the other one is down", "c", true)
	s.peer("c").Liveness = connected
	s.peer("b").Drains = []model.Drain{{Drained: model.Drained{Since: metav1.NewTime(s.v.Now), Over: metav1.Duration{Duration: 10 * time.Minute}}}}
	begins := s.peer("b").Drains[0].Begins(web)
	is("not reached yet", "", false)
	if s.last.Again != begins.Sub(s.v.Now) || begins.After(s.v.Now.Add(10*time.Minute)) {
		t.Errorf("decided again in %s, reached at %s", s.last.Again, begins)
	}
	s.after(begins.Sub(s.v.Now))
	is("reached", "b", true)
	s.peer("b").Drains = nil
	is("resumed", "", false)
}

func TestOnLostOfTheServiceImportWinsOverItsNamespace(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace, own string // "-": no annotation
		want           model.OnLost
		problem        string
	}{
		"neither says anything":                {"-", "-", model.OnLostWithdrawUnlessLast, ""},
		"the Namespace says it":                {"keep", "-", model.OnLostKeep, ""},
		"both say it":                          {"keep", "withdraw", model.OnLostWithdraw, ""},
		"the ServiceImport takes the default":  {"keep", "", model.OnLostWithdrawUnlessLast, ""},
		"the ServiceImport says it wrongly":    {"keep", "never", model.OnLostWithdrawUnlessLast, "ServiceImport shop/web"},
		"the Namespace says it wrongly":        {"never", "-", model.OnLostWithdrawUnlessLast, "Namespace shop"},
		"the Namespace is wrong but not asked": {"never", "keep", model.OnLostKeep, ""},
	} {
		t.Run(name, func(t *testing.T) {
			annotated := func(value string) metav1.ObjectMeta {
				if value == "-" {
					return metav1.ObjectMeta{Name: web.Namespace}
				}
				return metav1.ObjectMeta{Name: web.Namespace, Annotations: map[string]string{model.AnnotationOnLost: value}}
			}
			namespace, current := &corev1.Namespace{ObjectMeta: annotated(tc.namespace)}, plan.Current{Import: &mcsv1beta1.ServiceImport{ObjectMeta: annotated(tc.own)}}
			got, problems := onLost(web, current, namespace)
			if got != tc.want || (len(problems) > 0) != (tc.problem != "") {
				t.Fatalf("got %q and %v, want %q", got, problems, tc.want)
			}
			if tc.problem != "" && (problems[0].Reason != model.ReasonInvalidAnnotation || !strings.Contains(problems[0].Message, tc.problem)) {
				t.Errorf("got %+v", problems[0])
			}
		})
	}
}

// notReady are the clusters of which no endpoint is ready.
func (s *story) notReady() string {
	out := ""
	for _, slice := range s.v.Current.Slices {
		if ready := slice.Endpoints[0].Conditions.Ready; ready != nil && !*ready {
			out += slice.Labels[model.LabelSourceCluster]
		}
	}
	return out
}

// Down is an overlay on a source, which the slices keep over a restart.
func TestWhatIsDownStaysSoOverARestart(t *testing.T) {
	begin := func(t *testing.T) *story {
		s := newStory(t, "b", "c")
		s.publishes("b", at(-30))
		s.publishes("c", at(-20))
		s.step()
		s.unread("b")
		s.peer("b").Liveness.Silent = true
		s.step()
		if s.notReady() != "b" {
			t.Fatalf("not ready: %q", s.notReady())
		}
		s.restarts()
		s.publishes("c", at(-20))
		s.is("b c; ClusterSetIP http/80; from b c; frozen by b: NotRead")
		return s
	}
	for name, c := range map[string]struct {
		then func(*story)
		want string
	}{
		"nothing is known of it yet":       {func(*story) {}, "b"},
		"its heartbeat is missing still":   {func(s *story) { s.unread("b"); s.peer("b").Liveness.Seen = false }, "b"},
		"its endpoints answer":             {func(s *story) { s.probed(true, "b") }, ""},
		"its heartbeat is seen":            {func(s *story) { s.publishes("b", at(-30)) }, ""},
		"nobody else has a ready endpoint": {func(s *story) { s.deletes("c") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			c.then(s)
			s.step()
			if s.notReady() != c.want {
				t.Errorf("not ready: %q, want %q", s.notReady(), c.want)
			}
		})
	}
}
