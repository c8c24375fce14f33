// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// api is a cluster with these objects.
func api(t *testing.T, objects ...client.Object) *command.Target {
	t.Helper()
	scheme, err := command.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return &command.Target{Context: "x", Client: fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithObjects(objects...).Build()}
}

func exchangeNamespace(name string, from model.ClusterID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{model.LabelExchangeFrom: string(from)}}}
}

// exportRecord is one of Comity's own, unless by says otherwise.
func exportRecord(namespace, name, by string, spec exchangev1alpha1.ExportRecordSpec) *exchangev1alpha1.ExportRecord {
	return &exchangev1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: by, Operation: metav1.ManagedFieldsOperationApply, APIVersion: exchangev1alpha1.GroupVersion.String(),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`),
		}}},
		Spec: spec,
	}
}

func namespacesByName(objects ...*corev1.Namespace) map[string]*corev1.Namespace {
	out := map[string]*corev1.Namespace{}
	for _, object := range objects {
		out[object.Name] = object
	}
	return out
}

// One API server with the exchange namespaces of a and b, as a hub has them.
func TestWhatTheExchangeSays(t *testing.T) {
	const exported = "u-exported"
	target := api(t,
		exportRecord("comity-a", "web.shop", model.FieldOwner, exchangev1alpha1.ExportRecordSpec{ExportUID: exported}),
		exportRecord("comity-a-to-b", "db.shop", model.FieldOwner, exchangev1alpha1.ExportRecordSpec{ExportUID: "u-scoped"}),
		exportRecord("comity-a", "old.shop", model.FieldOwner, exchangev1alpha1.ExportRecordSpec{ExportUID: "u-withdrawn", Withdrawn: true}),
		exportRecord("comity-a", "foreign.shop", "somebody", exchangev1alpha1.ExportRecordSpec{ExportUID: "u-foreign"}),
		exportRecord("shop", "web.shop", model.FieldOwner, exchangev1alpha1.ExportRecordSpec{ExportUID: "u-elsewhere"}),
		&exchangev1alpha1.MemberRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b", Name: "b"}},
		&exchangev1alpha1.NamespaceRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b", Name: "shop"}, Spec: exchangev1alpha1.NamespaceRecordSpec{Labels: map[string]string{"team": "x"}}},
		&exchangev1alpha1.NamespaceRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b", Name: "bad"}, Spec: exchangev1alpha1.NamespaceRecordSpec{Labels: map[string]string{"team": "not a value!"}}},
		// c has not published all that it shares, so what is missing is not known to be absent.
		&exchangev1alpha1.NamespaceRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-c", Name: "shop"}},
	)
	read, err := readExchanged(t.Context(), target, namespacesByName(exchangeNamespace("comity-a", "a"), exchangeNamespace("comity-a-to-b", "a"),
		exchangeNamespace("comity-b", "b"), exchangeNamespace("comity-c", "c"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[model.ClusterID]map[types.UID]bool{"a": {exported: true, "u-scoped": true}, "b": {}, "c": {}}
	if diff := gocmp.Diff(want, read.published); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}

	c := &cluster{agent: agent.Agent{AgentInfo: model.AgentInfo{ID: "a", Mode: model.ExchangeHub}, Pod: "p"}, members: []model.Member{{ID: "b"}, {ID: "c"}}, shared: newExchanged()}
	c.shared.add(read)
	for name, want := range map[string][]model.MemberNamespace{
		"shop":  {{Cluster: "b", Presence: model.NamespacePresent, Labels: map[string]string{"team": "x"}}, {Cluster: "c", Presence: model.NamespaceUnknown}},
		"bad":   {{Cluster: "b", Presence: model.NamespaceUnknown}, {Cluster: "c", Presence: model.NamespaceUnknown}},
		"other": {{Cluster: "b", Presence: model.NamespaceAbsent}, {Cluster: "c", Presence: model.NamespaceUnknown}},
	} {
		if diff := gocmp.Diff(want, peers{c}.Namespace(name)); diff != "" {
			t.Errorf("namespace %s (-want +got):\n%s", name, diff)
		}
	}
	if diff := gocmp.Diff([]string{"the namespaces of cluster c are unknown to policies, because it has not published all that it shares"}, c.unknown()); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
	for uid, want := range map[types.UID]bool{exported: true, "u-withdrawn": false, "u-foreign": false, "u-elsewhere": false} {
		if got, err := c.isPublished(t.Context(), &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{UID: uid}}); got != want || err != nil {
			t.Errorf("%s is published: %v, %v; want %v", uid, got, err, want)
		}
	}
}

func TestWithoutTheExchangeTheConditionReadySaysWhatIsPublished(t *testing.T) {
	c := &cluster{agent: agent.Agent{AgentInfo: model.AgentInfo{ID: "a"}}, members: []model.Member{{ID: "b"}}, shared: newExchanged()}
	for status, want := range map[metav1.ConditionStatus]bool{metav1.ConditionTrue: true, metav1.ConditionFalse: false, "": false} {
		export := &mcsv1beta1.ServiceExport{}
		if status != "" {
			export.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: status}}
		}
		if got, err := c.isPublished(t.Context(), export); got != want || err != nil {
			t.Errorf("Ready is %q: published is %v, %v", status, got, err)
		}
	}
	if got := c.unknown(); len(got) != 3 {
		t.Errorf("three things are not known, not %q", got)
	}
}

func TestMembersAreThoseOfThePeers(t *testing.T) {
	peer := func(id, set string, labels map[string]string) *exchangev1alpha1.Peer {
		return &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: id, Labels: labels}, Spec: exchangev1alpha1.PeerSpec{ClusterSet: set, ClusterUID: "u", KubeconfigSecret: "s"}}
	}
	eu, us := map[string]string{"region": "eu"}, map[string]string{"region": "us"}
	limited, closed, removed := peer("c", "set", us), peer("e", "set", nil), peer("f", "set", eu)
	limited.Spec.AcceptedNamespaces, closed.Spec.AcceptedNamespaces, removed.Spec.Removed = &[]string{"shop", "team-*"}, &[]string{}, true
	target := api(t, limited, closed, removed, peer("b", "set", eu), peer("a", "set", eu), peer("d", "other", eu))
	got, accepted, err := readMembers(t.Context(), target, agent.Agent{Namespace: "comity-system", AgentInfo: model.AgentInfo{ID: "a", Set: "set"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []model.Member{{ID: "b", Labels: eu}, {ID: "c", Labels: us}, {ID: "d"}, {ID: "e"}}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(map[model.ClusterID]model.Namespaces{"c": {"shop", "team-*"}, "e": {}}, accepted); diff != "" {
		t.Errorf("accepted namespaces (-want +got):\n%s", diff)
	}
}

func TestFlagsOfTheAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		args, want []string
	}{
		"none":           {[]string{"--leader-elect"}, nil},
		"in one word":    {[]string{"--require-policies=a,b", "--x"}, []string{"a,b"}},
		"in two words":   {[]string{"--require-policies", "a"}, []string{"a"}},
		"twice":          {[]string{"--require-policies=a", "--require-policies=b"}, []string{"a", "b"}},
		"an empty value": {[]string{"--require-policies="}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := gocmp.Diff(tc.want, flagValues(corev1.Container{Args: tc.args}, requiredFlag)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestImportsAreThoseThatTheAgentDecidesOn(t *testing.T) {
	spec := func(namespace, name string, labels map[string]string) exchangev1alpha1.ExportRecordSpec {
		return exchangev1alpha1.ExportRecordSpec{
			Service: exchangev1alpha1.ServiceReference{Namespace: namespace, Name: name}, ExportUID: "u", ExportedAt: metav1.Unix(1, 0),
			Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}, Labels: labels,
		}
	}
	withdrawn := spec("shop", "gone", nil)
	withdrawn.Withdrawn = true
	target := api(t,
		exportRecord("comity-b", "web.shop", model.FieldOwner, spec("shop", "web", map[string]string{"tier": "1"})),
		exportRecord("comity-b-to-a", "db.shop", model.FieldOwner, spec("shop", "db", nil)),
		exportRecord("comity-b-to-d", "secret.shop", model.FieldOwner, spec("shop", "secret", nil)),
		exportRecord("comity-b", "gone.shop", model.FieldOwner, withdrawn),
		exportRecord("comity-b", "web.other", model.FieldOwner, spec("other", "web", nil)),
		exportRecord("comity-b", "bad.shop", model.FieldOwner, spec("shop", "another", nil)),
	)
	read, err := readExchanged(t.Context(), target, namespacesByName(exchangeNamespace("comity-b", "b"), exchangeNamespace("comity-b-to-a", "b"), exchangeNamespace("comity-b-to-d", "b")))
	if err != nil {
		t.Fatal(err)
	}
	imported := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply}}},
	}
	list := model.List{Formed: time.Unix(1, 0), Entries: []model.Entry{
		{Cluster: "b", UID: "of-b", CreatedAt: time.Unix(1, 0), Absent: model.SourcePublished},
		{Cluster: "c", UID: "of-c", CreatedAt: time.Unix(2, 0), Absent: model.SourcePublished},
	}}
	imported.Annotations = map[string]string{model.AnnotationList: list.String()}
	labels := map[string]string{model.LabelClusterID: "b"}
	c := &cluster{
		agent: agent.Agent{AgentInfo: model.AgentInfo{ID: "a"}}, importing: true, shared: read,
		members: []model.Member{{ID: "b", Labels: labels}, {ID: "c"}}, accepted: map[model.ClusterID]model.Namespaces{"b": {"shop"}},
		imports:    map[types.NamespacedName]*mcsv1beta1.ServiceImport{{Namespace: "shop", Name: "web"}: imported},
		namespaces: namespacesByName(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}),
	}
	got, err := c.source().Imports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b decision.ImportInput) int { return cmp.Compare(a.Export.Name, b.Export.Name) })
	var seen []string
	for _, in := range got {
		seen = append(seen, fmt.Sprintf("%s/%s from %s: imported %v, unread %v, labels %v", in.Export.Namespace, in.Export.Name, in.Source.Cluster, in.Imported, in.Unread, in.Export.Labels))
		if in.Namespace == nil || in.Source.Unknown || in.Cluster != "a" {
			t.Errorf("got %+v", in)
		}
	}
	// Of c nothing was read, so what is imported from it is not among them.
	want := []string{"shop/db from b: imported false, unread false, labels map[]", "shop/web from b: imported true, unread false, labels map[tier:1]"}
	if diff := gocmp.Diff(want, seen); diff != "" {
		t.Errorf("imports (-want +got):\n%s", diff)
	}
	c.importing = false
	if got, err := c.source().Imports(t.Context()); len(got) > 0 || err != nil {
		t.Errorf("with --import=false: %v, %v", got, err)
	}
}
