// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

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

func TestSourcesAreWhatWasResolvedAndWhatIsKeptUnsynced(t *testing.T) {
	livenesses := map[model.ClusterID]model.Liveness{"a": {State: model.Connected}, "b": {State: model.Lost}, "c": {State: model.Stale}}
	in := plan.ImportInput{
		Key: web, Desired: &model.Import{Constituents: []model.Constituent{{Cluster: "b"}, {Cluster: "a"}}},
		Unsynced: []model.ClusterID{"c", "e", "f"},
		Current: plan.Current{
			Import: &mcsv1beta1.ServiceImport{ObjectMeta: ours("web", nil), Status: mcsv1beta1.ServiceImportStatus{
				Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "a"}, {Cluster: "c"}, {Cluster: "d"}},
			}},
			Slices: []*discoveryv1.EndpointSlice{derivedSlice("e"), derivedSlice("f", foreign), derivedSlice("g")},
		},
	}
	want := []model.Source{{Cluster: "a", Liveness: livenesses["a"]}, {Cluster: "b", Liveness: livenesses["b"]}, {Cluster: "c", Liveness: livenesses["c"]}, {Cluster: "e"}}
	if diff := cmp.Diff(want, sources(in, livenesses)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	in.Current.Import.ManagedFields = nil
	if got := sources(in, livenesses); len(got) != 3 {
		t.Errorf("what somebody else's ServiceImport says counts: %v", got)
	}
}

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
			in := plan.ImportInput{Key: web, Sources: map[model.ClusterID][]*discoveryv1.EndpointSlice{"b": tc.published}, Current: plan.Current{Slices: tc.applied}}
			var got []string
			for _, target := range targetsOf("b", in) {
				got = append(got, target.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyLostClustersAreProbedAndLost(t *testing.T) {
	in := plan.ImportInput{Key: web, Current: plan.Current{Slices: []*discoveryv1.EndpointSlice{derivedSlice("c", endpoint("10.0.0.1", nil))}}}
	view := ImportView{
		Self: "a", Local: LocalExport{Key: web, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: web.Namespace}}},
		Members: []model.Member{
			{ID: "b", Synced: true, Liveness: model.Liveness{State: model.Stale}},
			{ID: "c", Liveness: model.Liveness{State: model.Lost}},
		},
		Current: in.Current, Unanswered: []model.ClusterID{"a", "b", "c", "d"},
	}
	decided := Import(view)
	if diff := cmp.Diff([]model.ClusterID{"c"}, decided.Plan.Lost); diff != "" || len(decided.Probe) != 1 || len(decided.Probe["c"]) != 1 {
		t.Errorf("probes %v; lost (-want +got):\n%s", decided.Probe, diff)
	}
	view.Members[1].Liveness.State = model.Stale
	if decided := Import(view); decided.Probe != nil || decided.Plan.Lost != nil {
		t.Errorf("still probes %v and finds %v lost", decided.Probe, decided.Plan.Lost)
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
