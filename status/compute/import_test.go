// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

func serviceImport(typ mcsv1beta1.ServiceImportType, ips ...string) *mcsv1beta1.ServiceImport {
	i := &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{Type: typ, IPs: ips}}
	i.Namespace, i.Name, i.Generation = "default", "web", 3
	i.Annotations = map[string]string{model.AnnotationDerivedName: "derived-1"}
	return i
}

func from(ids ...model.ClusterID) *model.Observation {
	o := &model.Observation{}
	for _, id := range ids {
		o.Sources = append(o.Sources, model.Source{Cluster: id, State: model.SourcePublished, Liveness: model.Liveness{State: model.Connected}})
	}
	return o
}

func entries(ids ...string) []mcsv1beta1.ClusterStatus {
	var list []mcsv1beta1.ClusterStatus
	for _, id := range ids {
		list = append(list, mcsv1beta1.ClusterStatus{Cluster: id})
	}
	return list
}

func TestImport(t *testing.T) {
	unassigned := serviceImport(mcsv1beta1.ClusterSetIP)
	unassigned.Annotations = nil
	troubled := from("b")
	troubled.Problems = []model.Problem{{Reason: model.ReasonNameTaken, Message: "Service default/derived-1 is not Comity's; rename it"}}
	cases := []struct {
		name string
		in   ImportInput
		want string
		objs mcsv1beta1.EndpointSliceObjectsStatus
	}{
		{
			"an import that works",
			ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP, "10.0.0.9", "fd00::9"), Derived: &corev1.Service{}, Slices: true, Observation: from("b", "a")},
			"Ready=True/Ready: web.default.svc.clusterset.local resolves to 10.0.0.9, fd00::9; exported by clusters a, b", "Present",
		},
		{
			"a headless import, which has no address of its own",
			ImportInput{Import: serviceImport(mcsv1beta1.Headless), Derived: &corev1.Service{}, Slices: true, Observation: from("a")},
			"Ready=True/Ready: web.default.svc.clusterset.local resolves to its endpoints; exported by cluster a", "Present",
		},
		{
			"no address yet",
			ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP), Derived: &corev1.Service{}, Observation: from("a")},
			"Ready=False/Pending: derived Service default/derived-1 has no cluster IP yet, so spec.ips is empty", "Absent",
		},
		{
			"no derived Service yet",
			ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP), Observation: from("a")},
			"Ready=False/Pending: derived Service default/derived-1 does not exist yet; Comity is working on it", "Absent",
		},
		{
			"no name for the derived Service yet",
			ImportInput{Import: unassigned, Observation: from("a")},
			"Ready=False/Pending: no derived Service is assigned yet; Comity is working on it", "Absent",
		},
		{
			"a derived name that is taken",
			ImportInput{Import: unassigned, Observation: troubled},
			"Ready=False/NameTaken: Service default/derived-1 is not Comity's; rename it", "Absent",
		},
		{
			"a problem that stops nothing",
			ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP, "10.0.0.9"), Derived: &corev1.Service{}, Slices: true, Observation: troubled},
			"Ready=True/Ready: web.default.svc.clusterset.local resolves to 10.0.0.9; exported by cluster b; NameTaken: Service default/derived-1 is not Comity's; rename it", "Present",
		},
		{
			"an import of which nothing was observed yet",
			ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP, "10.0.0.9"), Derived: &corev1.Service{}, Slices: true},
			"Ready=False/Pending: it is not known yet which clusters export this Service", "Present",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := Import(c.in, now)
			if diff := cmp.Diff([]string{c.want}, short(got.Conditions[:1])); diff != "" {
				t.Error(diff)
			}
			if got.EndpointSliceObjects != c.objs || got.Conditions[0].ObservedGeneration != 3 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// What keeps a whole source out, or leaves it as it is, is no fault of an import that
// others serve, or that waits for its Service.
func TestASourceThatIsKeptOutDoesNotMakeAnImportUnready(t *testing.T) {
	for _, reason := range []string{model.ReasonPolicyDenied, model.ReasonNotEvaluated, model.ReasonNamespaceUnknown, model.ReasonNamespaceNotAccepted} {
		seen := from("b")
		seen.Problems = []model.Problem{{Reason: reason, Cluster: "c", Message: "why"}}
		got := Import(ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP, "10.0.0.9"), Derived: &corev1.Service{}, Slices: true, Observation: seen}, now)
		want := []string{"Ready=True/Ready: web.default.svc.clusterset.local resolves to 10.0.0.9; exported by cluster b; " + reason + " in c: why"}
		if diff := cmp.Diff(want, short(got.Conditions[:1])); diff != "" {
			t.Error(diff)
		}
		got = Import(ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP), Observation: seen}, now)
		if c := got.Conditions[0]; c.Reason != "Pending" {
			t.Errorf("%s: without a Service %+v", reason, c)
		}
	}
}

func TestANewImportIsAnnouncedOnceWithItsClusters(t *testing.T) {
	in := ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP, "10.0.0.9"), Derived: &corev1.Service{}, Slices: true}
	var announced []string
	for _, seen := range []*model.Observation{nil, from("b"), from("b")} {
		in.Observation = seen
		old := in.Import.Status
		in.Import.Status = Import(in, now)
		announced = append(announced, short(Transitions(mcsv1beta1.ServiceImportKindName, old.Conditions, in.Import.Status.Conditions))...)
	}
	want := []string{"Ready=True/Ready: web.default.svc.clusterset.local resolves to 10.0.0.9; exported by cluster b"}
	if diff := cmp.Diff(want, announced); diff != "" {
		t.Error(diff)
	}
}

func TestSourceClusters(t *testing.T) {
	withUnsynced := func(o *model.Observation, unread ...model.ClusterID) *model.Observation {
		o.Unsynced = unread
		return o
	}
	cases := []struct {
		name string
		old  []mcsv1beta1.ClusterStatus
		seen *model.Observation
		want []mcsv1beta1.ClusterStatus
	}{
		{"the constituents, in order", nil, from("c", "a", "b"), entries("a", "b", "c")},
		{"one that stopped exporting leaves", entries("a", "b"), from("a"), entries("a")},
		{"one that was not read since start stays", entries("a", "b"), withUnsynced(from("a"), "b", "c"), entries("a", "b")},
		{"one that was not read but never contributed does not come", nil, withUnsynced(from("a"), "b"), entries("a")},
		{"nothing changes before the loop looked", entries("a", "b"), nil, entries("a", "b")},
		{"nobody exports it any more", entries("a"), &model.Observation{}, nil},
		{"nobody who was read exports it any more", entries("a", "b"), withUnsynced(&model.Observation{}, "b"), entries("b")},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := ImportInput{Import: serviceImport(mcsv1beta1.Headless), Observation: c.seen}
			in.Import.Status.Clusters = c.old
			if diff := cmp.Diff(c.want, Import(in, now).Clusters); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestImportStatusIsBoundAndStableWithAHundredClusters(t *testing.T) {
	var ids []model.ClusterID
	for i := range 100 {
		ids = append(ids, model.ClusterID(fmt.Sprintf("cluster-%03d", i)))
	}
	in := ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP, "10.0.0.9"), Derived: &corev1.Service{}, Slices: true, Observation: from(ids...)}
	first := Import(in, before)
	if len(first.Clusters) != 100 || len(first.Conditions[0].Message) > condition.MaxMessage {
		t.Errorf("%d clusters, message of %d bytes", len(first.Clusters), len(first.Conditions[0].Message))
	}
	in.Import.Status = *first.DeepCopy()
	in.Import.Status.Clusters[0], in.Import.Status.Clusters[1] = in.Import.Status.Clusters[1], in.Import.Status.Clusters[0]
	in.Import.Status.Conditions = append(in.Import.Status.Conditions, metav1.Condition{Type: "Theirs"})
	again := Import(in, now)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error(diff)
	}
	if !SameImport(in.Import.Status, again) {
		t.Error("a status that is as it should be is to be written again")
	}
}

func TestAProblemIsNotForgottenWhileItCannotBeSeen(t *testing.T) {
	const told = "web.default.svc.clusterset.local resolves; Service default/derived-1 is not Comity's; rename it"
	unread, alone := &model.Observation{Unsynced: []model.ClusterID{"a"}, Starting: []model.ClusterID{"a"}}, from("b")
	joined := from("b")
	joined.Unsynced, joined.Starting = unread.Unsynced, unread.Starting
	for name, c := range map[string]struct {
		seen *model.Observation
		kept bool
	}{
		"the loop has not looked yet":               {nil, true},
		"the only source cluster is unread":         {unread, true},
		"every source cluster was read":             {from("a"), false},
		"other clusters contribute than before":     {alone, false},
		"one more contributes, the first is unread": {joined, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := ImportInput{Import: serviceImport(mcsv1beta1.Headless), Derived: &corev1.Service{}, Slices: true, Observation: c.seen}
			in.Import.Status.Clusters = entries("a")
			in.Import.Status.Conditions = []metav1.Condition{{
				Type: string(mcsv1beta1.ServiceImportConditionReady), Status: metav1.ConditionTrue, ObservedGeneration: 3,
				Reason: string(mcsv1beta1.ServiceImportReasonReady), Message: told, LastTransitionTime: metav1.Unix(1, 0),
			}}
			if got := Import(in, metav1.Unix(2, 0)).Conditions[0].Message; (got == told) != c.kept {
				t.Errorf("message %q, kept should be %t", got, c.kept)
			}
			// One that the problem keeps from being used looks pending for want of it.
			in.Derived, in.Import.Status.Conditions[0].Status = nil, metav1.ConditionFalse
			in.Import.Status.Conditions[0].Reason = string(model.ReasonNameTaken)
			if got := Import(in, metav1.Unix(2, 0)).Conditions[0]; (got.Message == told) != c.kept || got.Status != metav1.ConditionFalse {
				t.Errorf("broken: %+v, kept should be %t", got, c.kept)
			}
		})
	}
}
