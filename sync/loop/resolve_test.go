// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"net/netip"
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
	contacts := map[model.ClusterID]model.Liveness{"a": {State: model.Connected}, "b": {State: model.Lost}, "c": {State: model.Stale}}
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
	want := []model.Source{{Cluster: "a", Liveness: contacts["a"]}, {Cluster: "b", Liveness: contacts["b"]}, {Cluster: "c", Liveness: contacts["c"]}, {Cluster: "e"}}
	if diff := cmp.Diff(want, sourcesOf(in, contacts)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	in.Current.Import.ManagedFields = nil
	if got := sourcesOf(in, contacts); len(got) != 3 {
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
			for _, target := range targetsOf("b", &in) {
				got = append(got, target.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// prober finds every cluster down, watched or not.
type prober struct {
	watched map[model.ClusterID][]netip.AddrPort
	calls   int
}

func (p *prober) Watch(_ types.NamespacedName, targets map[model.ClusterID][]netip.AddrPort) {
	p.watched, p.calls = targets, p.calls+1
}
func (p *prober) Down(types.NamespacedName) []model.ClusterID {
	return []model.ClusterID{"a", "b", "c", "d"}
}
func (p *prober) Subscribe(func(types.NamespacedName)) (cancel func()) { return func() {} }

func TestOnlyLostClustersAreProbedAndLost(t *testing.T) {
	p := &prober{}
	i := &importer{base: &base{Options: Options{Prober: p}}}
	in := plan.ImportInput{Key: web, Current: plan.Current{Slices: []*discoveryv1.EndpointSlice{derivedSlice("c", endpoint("10.0.0.1", nil))}}}
	sources := []model.Source{
		{Cluster: "a", Liveness: model.Liveness{State: model.Connected}},
		{Cluster: "b", Liveness: model.Liveness{State: model.Stale}},
		{Cluster: "c", Liveness: model.Liveness{State: model.Lost}},
	}
	i.lose(&in, sources)
	if diff := cmp.Diff([]model.ClusterID{"c"}, in.Lost); diff != "" || len(p.watched) != 1 || len(p.watched["c"]) != 1 {
		t.Errorf("watches %v; lost (-want +got):\n%s", p.watched, diff)
	}
	in.Lost = nil
	i.lose(&in, sources[:2])
	if p.watched != nil || p.calls != 2 || in.Lost != nil {
		t.Errorf("still watches %v and calls %v lost", p.watched, in.Lost)
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

func TestTheScopeIsWhatAllAllow(t *testing.T) {
	members := []model.Member{{ID: "b", Properties: map[string]string{"region": "eu"}}, {ID: "c", Properties: map[string]string{"region": "eu"}}, {ID: "d"}}
	for name, tc := range map[string]struct {
		list, selector, namespace string // "": no annotation
		want                      string
		says                      []string // of the error
	}{
		"nothing said":                         {want: "every cluster"},
		"a list":                               {list: "b,d", want: "b,d"},
		"a selector":                           {selector: "region=eu", want: "b,c"},
		"a list and a selector":                {list: "b,d", selector: "region=eu", want: "b"},
		"a selector and a Namespace":           {selector: "region=eu", namespace: "c,d", want: "c"},
		"all three":                            {list: "b,c", selector: "region=eu", namespace: "c", want: "c"},
		"a selector that cannot be read":       {selector: "a=b=c", says: []string{"ServiceExport shop/web", "comity.dev/export-to-selector", "exported nowhere"}},
		"a selector that selects nobody":       {selector: "region=mars", says: []string{"ServiceExport shop/web", "comity.dev/export-to-selector", "none of the members"}},
		"a list and a selector that part":      {list: "d", selector: "region=eu", says: []string{"selects b,c", "allows d"}},
		"a selector beside a list that is bad": {list: "b,,c", selector: "region=eu", says: []string{"comity.dev/export-to:", "exported nowhere"}},
		"a Namespace that parts from both":     {selector: "region=eu", namespace: "d", says: []string{"names b,c", "Namespace allows d"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(pairs ...string) map[string]string {
				out := map[string]string{}
				for n := 0; n < len(pairs); n += 2 {
					if pairs[n+1] != "" {
						out[pairs[n]] = pairs[n+1]
					}
				}
				return out
			}
			local := &localExport{
				key:       web,
				export:    &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Annotations: set(model.AnnotationExportTo, tc.list, model.AnnotationExportToSelector, tc.selector)}},
				namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: set(model.AnnotationExportTo, tc.namespace)}},
			}
			scope, err := effectiveScope(local, members)
			if (err != nil) != (len(tc.says) > 0) || err == nil && scope.String() != tc.want || err != nil && !scope.Empty() {
				t.Fatalf("got %s and error %v, want %s", scope, err, tc.want)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want it to say %q", err, part)
				}
			}
		})
	}
}
