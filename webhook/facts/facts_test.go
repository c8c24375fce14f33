// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook/facts"
)

type peers struct {
	members    []model.Member
	namespaces map[string]map[model.ClusterID]decision.PeerNamespace
}

func (p peers) Members() []model.Member { return p.members }
func (p peers) Namespace(name string) map[model.ClusterID]decision.PeerNamespace {
	return p.namespaces[name]
}

func export(annotations map[string]string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: annotations}}
}

func namespace(annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: annotations}}
}

func service(kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Type: kind}}
}

func reader(objects ...client.Object) client.Reader {
	return fake.NewClientBuilder().WithObjects(objects...).Build()
}

// broken is a reader that fails on one kind.
func broken(kind client.Object, objects ...client.Object) client.Reader {
	return fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			_, isNamespace := into.(*corev1.Namespace)
			_, breaksNamespace := kind.(*corev1.Namespace)
			if isNamespace == breaksNamespace {
				return errors.New("the cache is not synced")
			}
			return c.Get(ctx, key, into, opts...)
		},
	}).Build()
}

var ignoreVersions = cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion")

func TestInputHoldsAllFacts(t *testing.T) {
	stored := export(map[string]string{model.AnnotationExportTo: "c, b,c"})
	before := export(nil)
	user := &decision.UserInfo{Username: "eve", Groups: []string{"devs"}}
	r := facts.Reader{
		Client:  reader(namespace(map[string]string{model.AnnotationExportTo: "b"}), service(corev1.ServiceTypeNodePort)),
		Cluster: "a",
		Peers: peers{
			members: []model.Member{{ID: "b", Synced: true}, {ID: "c", Synced: true}, {ID: "d"}, {ID: "e"}},
			namespaces: map[string]map[model.ClusterID]decision.PeerNamespace{"shop": {
				"b":    {Presence: decision.Present, Labels: map[string]string{"comity.dev/identity": "x"}},
				"c":    {Presence: decision.Absent},
				"d":    {Presence: decision.Unknown},
				"gone": {Presence: decision.Present},
			}},
		},
	}

	got, err := r.Input(t.Context(), decision.Input{Operation: decision.Update, UserInfo: user, Object: stored, OldObject: before})
	if err != nil {
		t.Fatal(err)
	}

	wantService, wantNamespace := service(corev1.ServiceTypeNodePort), namespace(map[string]string{model.AnnotationExportTo: "b"})
	wantService.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	wantNamespace.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}
	want := decision.Input{
		APIVersion: "policy.comity.dev/v1alpha1", Operation: decision.Update, Subject: decision.SubjectServiceExport,
		UserInfo: user, Object: stored, OldObject: before,
		Service:   wantService,
		Namespace: wantNamespace,
		Cluster:   "a",
		Scope:     decision.Scope{Clusters: []string{"b", "c"}}, NamespaceScope: decision.Scope{Clusters: []string{"b"}}, EffectiveScope: decision.Scope{Clusters: []string{"b"}},
		Destinations: []decision.Destination{
			{Clusters: []string{"b"}, Namespace: decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{"comity.dev/identity": "x"}}},
		},
		Peers: map[string]decision.Peer{
			"b": {Namespace: decision.PeerNamespace{Presence: decision.Present, Labels: map[string]string{"comity.dev/identity": "x"}}},
			"c": {Namespace: decision.PeerNamespace{Presence: decision.Absent}},
			"d": {Namespace: decision.PeerNamespace{Presence: decision.Unknown}},
			"e": {Namespace: decision.PeerNamespace{Presence: decision.Unknown}},
		},
	}
	if diff := cmp.Diff(want, got, ignoreVersions); diff != "" {
		t.Errorf("input (-want +got):\n%s", diff)
	}
}

func TestInputReadsScopes(t *testing.T) {
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        decision.Scope
	}{
		{"no annotation is every cluster", map[string]string{"other": "b"}, decision.Scope{All: true}},
		{"a list is sorted and unique", map[string]string{model.AnnotationExportTo: "c,b, c"}, decision.Scope{Clusters: []string{"b", "c"}}},
		{"an empty list is no cluster and a problem", map[string]string{model.AnnotationExportTo: ""}, decision.Scope{
			Problem: `the list names no cluster; expected cluster ids separated by commas, such as "b,c"`,
		}},
		{"an empty item is no cluster and a problem", map[string]string{model.AnnotationExportTo: "b,,c"}, decision.Scope{
			Problem: `item 2 of "b,,c" is empty; expected cluster ids separated by single commas, such as "b,c"`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := facts.Reader{Client: reader(namespace(tc.annotations)), Cluster: "a", Peers: peers{}}
			got, err := r.Input(t.Context(), decision.Input{Object: export(tc.annotations)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Scope); diff != "" {
				t.Errorf("scope of the export (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got.NamespaceScope); diff != "" {
				t.Errorf("scope of the namespace (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheEffectiveScopeIsTheOneThatIsPublished(t *testing.T) {
	for _, tc := range []struct {
		name              string
		export, namespace map[string]string
		want              decision.Scope
		problem           string
	}{
		{"nothing narrows it", nil, nil, decision.Scope{All: true}, ""},
		{"a selector selects members", map[string]string{model.AnnotationExportToSelector: "region=eu"}, nil, decision.Scope{Clusters: []string{"b", "c"}}, ""},
		{
			"list, selector and Namespace", map[string]string{model.AnnotationExportTo: "b,c,d", model.AnnotationExportToSelector: "region=eu"},
			map[string]string{model.AnnotationExportTo: "c,d"}, decision.Scope{Clusters: []string{"c"}}, "",
		},
		{"a selector that cannot be read", map[string]string{model.AnnotationExportToSelector: "a=b=c"}, nil, decision.Scope{}, "exported nowhere until that is corrected"},
		{"a selector that selects nothing", map[string]string{model.AnnotationExportToSelector: "region=mars"}, nil, decision.Scope{}, "allows none of the members"},
		{"a Namespace that allows nothing of it", map[string]string{model.AnnotationExportTo: "b"}, map[string]string{model.AnnotationExportTo: "c"}, decision.Scope{}, "no cluster is in both"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			members := []model.Member{{ID: "b", Labels: map[string]string{"region": "eu"}}, {ID: "c", Labels: map[string]string{"region": "eu"}}, {ID: "d"}}
			r := facts.Reader{Client: reader(namespace(tc.namespace)), Cluster: "a", Peers: peers{members: members}}
			got, err := r.Input(t.Context(), decision.Input{Object: export(tc.export)})
			if err != nil {
				t.Fatal(err)
			}
			if problem := got.EffectiveScope.Problem; (problem == "") != (tc.problem == "") || !strings.Contains(problem, tc.problem) {
				t.Errorf("problem %q, want %q", problem, tc.problem)
			}
			tc.want.Problem = got.EffectiveScope.Problem
			if diff := cmp.Diff(tc.want, got.EffectiveScope); diff != "" {
				t.Errorf("effective scope (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInputHasThePortsThatAreShared(t *testing.T) {
	stored := service(corev1.ServiceTypeClusterIP)
	stored.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "admin", Port: 90}}
	http := mcsv1beta1.ServicePort{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}
	admin := mcsv1beta1.ServicePort{Name: "admin", Port: 90, Protocol: corev1.ProtocolTCP}
	ports := func(list string) map[string]string { return map[string]string{model.AnnotationExportPorts: list} }
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		objects     []client.Object
		want        []mcsv1beta1.ServicePort
	}{
		{"all", nil, []client.Object{stored}, []mcsv1beta1.ServicePort{http, admin}},
		{"one", ports("admin"), []client.Object{stored}, []mcsv1beta1.ServicePort{admin}},
		{"one, and one that is not there", ports("http,metrics"), []client.Object{stored}, []mcsv1beta1.ServicePort{http}},
		{"none, for the list cannot be read", ports("http,,admin"), []client.Object{stored}, nil},
		{"none, for there is no Service", ports("http"), nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := facts.Reader{Client: reader(append(tc.objects, namespace(nil))...), Cluster: "a", Peers: peers{}}
			got, err := r.Input(t.Context(), decision.Input{Object: export(tc.annotations)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Ports); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInputSaysWhatIsPublished(t *testing.T) {
	yes := func(context.Context, *mcsv1beta1.ServiceExport) (decision.Publication, error) {
		return decision.Publication{Published: true}, nil
	}
	unknown := func(context.Context, *mcsv1beta1.ServiceExport) (decision.Publication, error) {
		return decision.Publication{}, errors.New("the hub was not read yet")
	}
	for _, tc := range []struct {
		name      string
		published func(context.Context, *mcsv1beta1.ServiceExport) (decision.Publication, error)
		operation decision.Operation
		want      bool
		wantError string
	}{
		{"what stands in the exchange", yes, decision.Audit, true, ""},
		{"in an update as well", yes, decision.Update, true, ""},
		{"what is created is not published", yes, decision.Create, false, ""},
		{"without an exchange nothing is", nil, decision.Audit, false, ""},
		{"an audit needs to know", unknown, decision.Audit, false, "read whether it is published: the hub was not read yet"},
		{"a request does not wait for the hub", unknown, decision.Update, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := facts.Reader{Client: reader(namespace(nil)), Cluster: "a", Peers: peers{}, Published: tc.published}
			got, err := r.Input(t.Context(), decision.Input{Operation: tc.operation, Object: export(nil)})
			if (err != nil) != (tc.wantError != "") || err != nil && err.Error() != tc.wantError {
				t.Fatalf("error %v, want %q", err, tc.wantError)
			}
			if got.Published != tc.want {
				t.Errorf("published is %v, want %v", got.Published, tc.want)
			}
		})
	}
}

func TestInputLooksForTheServiceAndNamespace(t *testing.T) {
	ns, svc := namespace(nil), service(corev1.ServiceTypeClusterIP)
	for _, tc := range []struct {
		name         string
		client, live client.Reader
		request      decision.Input
		wantType     corev1.ServiceType // "" for no Service
		wantError    string
	}{
		{name: "an export may come before its Service", client: reader(ns), live: reader(ns)},
		{name: "the stored Service is read", client: reader(ns, svc), wantType: corev1.ServiceTypeClusterIP},
		{
			name: "the Service of the request counts, not the stored one", client: reader(ns, svc),
			request: decision.Input{Operation: decision.Update, Service: service(corev1.ServiceTypeExternalName)}, wantType: corev1.ServiceTypeExternalName,
		},
		{
			name: "at admission a Service younger than the cache is found", client: reader(ns), live: reader(ns, service(corev1.ServiceTypeExternalName)),
			request: decision.Input{Operation: decision.Create}, wantType: corev1.ServiceTypeExternalName,
		},
		{
			name: "at admission a Namespace younger than the cache is found", client: reader(svc), live: reader(ns),
			request: decision.Input{Operation: decision.Create}, wantType: corev1.ServiceTypeClusterIP,
		},
		{name: "an audit asks the cache alone", client: reader(ns), live: reader(ns, svc)},
		{
			name: "an unknown Namespace is an error, since its limits are unknown", client: reader(svc),
			wantError: "namespace shop is not known here",
		},
		{name: "a Namespace that cannot be read is an error", client: broken(ns, svc), wantError: "read Namespace shop: the cache is not synced"},
		{name: "a Service that cannot be read is an error", client: broken(svc, ns), wantError: "read Service shop/web: the cache is not synced"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := facts.Reader{Client: tc.client, Live: tc.live, Cluster: "a", Peers: peers{}}
			tc.request.Object = export(nil)
			got, err := r.Input(t.Context(), tc.request)
			if tc.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantError) {
					t.Fatalf("error is %v, want one with %q", err, tc.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var gotType corev1.ServiceType
			if got.Service != nil {
				gotType = got.Service.Spec.Type
			}
			if gotType != tc.wantType {
				t.Errorf("type of the Service is %q, want %q", gotType, tc.wantType)
			}
		})
	}
}

type evaluator struct{ asked []decision.Input }

func (e *evaluator) Evaluate(_ context.Context, in decision.Input) decision.Verdict {
	e.asked = append(e.asked, in)
	return decision.Verdict{Outcome: decision.Allowed, Digest: "d"}
}

func TestReviewerAuditsWhatIsStored(t *testing.T) {
	policies := &evaluator{}
	reviewer := facts.Reviewer{Reader: facts.Reader{Client: reader(namespace(nil)), Cluster: "a", Peers: peers{}}, Evaluator: policies}
	got := reviewer.Admit(t.Context(), export(nil))
	if diff := cmp.Diff(decision.Verdict{Outcome: decision.Allowed, Digest: "d", Kept: got.Kept}, got); diff != "" || got.Kept == "" {
		t.Errorf("verdict (-want +got):\n%s", diff)
	}
	if len(policies.asked) != 1 || policies.asked[0].Operation != decision.Audit || policies.asked[0].UserInfo != nil {
		t.Errorf("asked %+v, want one audit without a user", policies.asked)
	}
}

func TestReviewerGivesNoVerdictWithoutFacts(t *testing.T) {
	policies := &evaluator{}
	reviewer := facts.Reviewer{Reader: facts.Reader{Client: reader(), Cluster: "a", Peers: peers{}}, Evaluator: policies}
	got := reviewer.Admit(t.Context(), export(nil))
	want := decision.Verdict{
		Outcome: decision.NotEvaluated,
		Problem: "the facts about ServiceExport shop/web could not be read: namespace shop is not known here (yet), so the limits that it may set are not known either",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdict (-want +got):\n%s", diff)
	}
	if len(policies.asked) != 0 {
		t.Error("the policies were asked about facts that are not there")
	}
}

// What an update is compared with has the scope of the export as it was: a wider one is
// worse.
func TestBeforeIsTheAuditOfWhatAnUpdateReplaces(t *testing.T) {
	published := func(context.Context, *mcsv1beta1.ServiceExport) (decision.Publication, error) {
		return decision.Publication{Published: true}, nil
	}
	read := func(t *testing.T, req decision.Input, is func(context.Context, *mcsv1beta1.ServiceExport) (decision.Publication, error)) decision.Input {
		t.Helper()
		in, err := facts.Reader{
			Client: reader(namespace(nil), service(corev1.ServiceTypeClusterIP)), Cluster: "a", Published: is,
			Peers: peers{members: []model.Member{{ID: "b"}, {ID: "c"}}},
		}.Input(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	update := decision.Input{
		Operation: decision.Update, UserInfo: &decision.UserInfo{Username: "jane"},
		OldObject: export(map[string]string{model.AnnotationExportTo: "b"}), Object: export(map[string]string{model.AnnotationExportTo: "b,c"}),
	}
	in := read(t, update, published)
	if in.Before == nil {
		t.Fatal("there is no input of what was before")
	}
	want := read(t, decision.Input{Object: update.OldObject}, published)
	if diff := cmp.Diff(want, *in.Before, ignoreVersions); diff != "" {
		t.Errorf("an audit of the old export gives something else (-audit +before):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b"}, in.Before.EffectiveScope.Clusters); diff != "" {
		t.Errorf("the scope before (-want +got):\n%s", diff)
	}

	no := func(context.Context, *mcsv1beta1.ServiceExport) (decision.Publication, error) {
		return decision.Publication{}, nil
	}
	if in := read(t, update, no); in.Before != nil {
		t.Error("an export that is not published has something to be compared with")
	}
	onService := update
	onService.Subject = decision.SubjectService
	if in := read(t, onService, published); in.Before != nil {
		t.Error("a request on a Service has something to be compared with")
	}
}
