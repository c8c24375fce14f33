// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"strings"
	"testing"

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
			i := newImporting(ImportView{Local: LocalExport{Namespace: &corev1.Namespace{}}, Current: plan.Current{Slices: tc.applied}, Peers: []PeerView{{Published: exchange.Published{Member: model.Member{ID: "b"}}}}})
			i.sources["b"] = source{Source: model.Source{State: model.SourceMissing}}
			d := ImportDecision{Plan: plan.ImportInput{Key: web, Sources: map[model.ClusterID][]*discoveryv1.EndpointSlice{"b": tc.published}}}
			i.addLost(&d)
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

// What is lost, or missing, is probed; its endpoints are down if they do not answer either.
func TestOnlyWhatIsLostOrMissingIsProbed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*story)
		probed bool
	}{
		"lost, and read before": {func(s *story) { s.peer("b").Liveness.State = model.Lost }, true},
		"lost, and not read":    {func(s *story) { s.unread("b") }, true},
		"without a Peer":        {func(s *story) { s.gone("b"); s.peer("b").Probed = Silent }, true},
		"missing":               {func(s *story) { s.loses("b") }, true},
		"stale":                 {func(s *story) { s.peer("b").Liveness.State = model.Stale }, false},
		"suspended":             {func(s *story) { s.withdraws("b", true); s.peer("b").Liveness.State = model.Lost }, false},
		"read":                  {func(*story) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, "b", "c")
			s.publishes("b", at(-30))
			s.publishes("c", at(-20))
			s.step()
			s.peer("b").Probed, s.peer("c").Probed = Silent, Silent
			tc.change(s)
			s.step()
			wasProbed, isDown := len(s.last.Probe["b"]) == 1, slices.Equal(s.last.Plan.Lost, []model.ClusterID{"b"})
			if wasProbed != tc.probed || isDown != tc.probed || len(s.last.Probe["c"]) > 0 {
				t.Errorf("probed %v, lost %v", s.last.Probe, s.last.Plan.Lost)
			}
			if !tc.probed {
				return
			}
			s.peer("b").Probed = Answers
			s.step()
			if len(s.last.Plan.Lost) > 0 || len(s.last.Plan.Answers) != 1 {
				t.Errorf("it answers, and is lost: %v", s.last.Plan.Lost)
			}
		})
	}
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
		s.peer("b").Probed = Silent
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
		"its endpoints answer":             {func(s *story) { s.peer("b").Probed = Answers }, ""},
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

// A cluster that lost one of its slices is not down as a whole after a restart.
func TestALostSliceIsNotTheWholeClusterAfterARestart(t *testing.T) {
	s := newStory(t, "b", "c")
	s.publishes("b", at(-30))
	s.publishes("c", at(-20))
	other := s.peer("b").Slices[0].DeepCopy()
	other.Name, other.Annotations = "web-2", map[string]string{model.AnnotationSourceSlice: "web-2"}
	s.peer("b").Slices, s.peer("b").Export.Slices = append(s.peer("b").Slices, other), []string{"web-b", "web-2"}
	s.step()
	s.peer("b").Slices, s.peer("b").Probed = s.peer("b").Slices[:1], Silent
	s.step()
	if s.notReady() != "b" {
		t.Fatalf("not ready: %q", s.notReady())
	}
	s.restarts()
	s.publishes("c", at(-20))
	s.step()
	if s.notReady() != "b" || len(s.last.Plan.Lost) > 0 {
		t.Errorf("not ready: %q, lost %v", s.notReady(), s.last.Plan.Lost)
	}
}
