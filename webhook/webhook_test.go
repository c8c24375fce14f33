// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
)

// reviewer denies everything, and records its requests and how long it had.
type reviewer struct {
	verdict decision.Verdict
	asked   []decision.Input
	left    time.Duration
}

func (r *reviewer) Review(ctx context.Context, req decision.Input) decision.Verdict {
	r.asked = append(r.asked, req)
	if deadline, ok := ctx.Deadline(); ok {
		r.left = time.Until(deadline)
	}
	return r.verdict
}

type checker struct{ err error }

func (c checker) Check(context.Context, *policyv1alpha1.ExportPolicy) ([]string, error) {
	return nil, c.err
}

var denied = decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "p", Message: "no."}}}

// fixture is the webhooks with a reviewer of the test's own.
type fixture struct {
	reviewer *reviewer
	live     client.Reader
	conflict Forecaster
	checker  PolicyChecker
	registry *prometheus.Registry
	recorder events.EventRecorder
	clock    clock.PassiveClock
	log      logr.Logger
	handlers map[string]http.Handler // once they were asked for
}

func (f *fixture) hooks(t *testing.T) map[string]http.Handler {
	t.Helper()
	if f.handlers != nil {
		return f.handlers
	}
	if f.reviewer == nil {
		f.reviewer = &reviewer{verdict: denied}
	}
	if f.registry == nil {
		f.registry = prometheus.NewRegistry()
	}
	all := Handlers(Options{
		Reviewer: f.reviewer, Live: f.live, Conflicts: f.conflict, Policies: f.checker,
		Registerer: f.registry, Recorder: f.recorder, Clock: f.clock, Logger: f.log,
	})
	f.handlers = all
	return all
}

func (f *fixture) ask(t *testing.T, path, query string, req admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	return send(t, f.hooks(t)[path], path+query, req)
}

func send(t *testing.T, hook http.Handler, url string, req admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	req.UID = "u"
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &req,
	})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	hook.ServeHTTP(recorder, request)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil {
		t.Fatalf("answer %q: %v", recorder.Body, err)
	}
	return review.Response
}

func raw(t *testing.T, object any) runtime.RawExtension {
	t.Helper()
	if text, ok := object.(string); ok {
		return runtime.RawExtension{Raw: []byte(text)}
	}
	out, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: out}
}

func request(t *testing.T, op admissionv1.Operation, kind string, now, was any) admissionv1.AdmissionRequest {
	t.Helper()
	req := admissionv1.AdmissionRequest{
		Operation: op, Namespace: "shop", Name: "web",
		Kind:     metav1.GroupVersionKind{Group: "g", Version: "v", Kind: kind},
		UserInfo: authenticationv1.UserInfo{Username: "eve"},
	}
	if now != nil {
		req.Object = raw(t, now)
	}
	if was != nil {
		req.OldObject = raw(t, was)
	}
	return req
}

const (
	plain      = `{"apiVersion":"multicluster.x-k8s.io/v1alpha1","kind":"ServiceExport","metadata":{"name":"web","namespace":"shop"}}`
	labeled    = `{"metadata":{"name":"web","namespace":"shop","labels":{"export-to":"b, c"}}}`
	annotated  = `{"metadata":{"name":"web","namespace":"shop","annotations":{"comity.dev/export-to":"b"}}}`
	twoScopes  = `{"metadata":{"name":"web","namespace":"shop","labels":{"export-to":"c"},"annotations":{"comity.dev/export-to":"b"}}}`
	finalizer  = `{"metadata":{"name":"web","namespace":"shop","finalizers":["x/y"]},"status":{"conditions":[]}}`
	dying      = `{"metadata":{"name":"web","namespace":"shop","deletionTimestamp":"2026-01-01T00:00:00Z","labels":{"export-to":"c"},"annotations":{"comity.dev/export-to":"b"}}}`
	exporting  = `{"metadata":{"name":"web","namespace":"shop"},"spec":{"exportedLabels":{"a":"b"}}}`
	tracked    = `{"metadata":{"name":"web","namespace":"shop"},"spec":{"exportedLabels":{"a":"b","app.kubernetes.io/instance":"web"}}}`
	unreadable = `{"metadata":{"name":7}}`
)

func TestWhichServiceExportsAreReviewed(t *testing.T) {
	for _, tc := range []struct {
		name     string
		op       admissionv1.Operation
		now, was any
		reviewed bool
	}{
		{"a creation is reviewed", admissionv1.Create, plain, nil, true},
		{"a changed annotation is reviewed", admissionv1.Update, annotated, plain, true},
		{"a changed spec is reviewed", admissionv1.Update, exporting, plain, true},
		{"a finalizer is no business of a policy", admissionv1.Update, finalizer, plain, false},
		{"removing one neither", admissionv1.Update, plain, finalizer, false},
		{"an export that is being deleted is not reviewed any more", admissionv1.Update, dying, annotated, false},
		{"a deletion is never reviewed", admissionv1.Delete, nil, plain, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fixture{}
			got := f.ask(t, PathValidateServiceExport, "", request(t, tc.op, "ServiceExport", tc.now, tc.was))
			if reviewed := len(f.reviewer.asked) == 1; reviewed != tc.reviewed {
				t.Errorf("reviewed: %v, want %v", reviewed, tc.reviewed)
			}
			if got.Allowed == tc.reviewed {
				t.Errorf("allowed is %v though every verdict is a denial", got.Allowed)
			}
		})
	}
}

func TestASelectorThatCannotBeReadIsRefusedWithoutAskingAPolicy(t *testing.T) {
	const selecting = `{"metadata":{"name":"web","namespace":"shop","annotations":{"comity.dev/export-to-selector":"a=b=c"}}}`
	f := &fixture{}
	got := f.ask(t, PathValidateServiceExport, "", request(t, admissionv1.Update, "ServiceExport", selecting, plain))
	if got.Allowed || got.Result.Code != http.StatusBadRequest || len(f.reviewer.asked) != 0 {
		t.Errorf("got %+v, with %d reviews; want a refusal without a review", got, len(f.reviewer.asked))
	}
}

// foretold are warnings that a test foretells of every export.
type foretold []string

func (f foretold) Warnings(context.Context, *mcsv1beta1.ServiceExport) []string { return f }

func TestWhatIsNotExportedAndConflictsAreForetoldAndNeverRefused(t *testing.T) {
	warning := decision.Verdict{Outcome: decision.Allowed, Warnings: []decision.Violation{{Policy: "p", Message: "note"}}}
	const dropped = `ServiceExport shop/web, spec.exportedLabels: "app.kubernetes.io/instance": not exported, because Kubernetes, Comity, ` +
		"or a tool such as Argo CD, Flux or Helm would act on it in other clusters; remove it"
	for _, tc := range []struct {
		name     string
		op       admissionv1.Operation
		now, was any
		verdict  decision.Verdict
		conflict Forecaster
		allowed  bool
		want     []string
	}{
		{"a creation", admissionv1.Create, plain, nil, warning, foretold{"conflict of x"}, true, []string{"[p] note.", "conflict of x"}},
		{"an update", admissionv1.Update, annotated, plain, warning, foretold{"conflict of x"}, true, []string{"[p] note.", "conflict of x"}},
		{"none", admissionv1.Create, plain, nil, warning, foretold(nil), true, []string{"[p] note."}},
		{"nobody to foretell them", admissionv1.Create, plain, nil, warning, nil, true, []string{"[p] note."}},
		{"a label that is not exported", admissionv1.Create, tracked, nil, warning, foretold{"conflict of x"}, true, []string{"[p] note.", dropped, "conflict of x"}},
		{"a label that is not exported of what is refused", admissionv1.Create, tracked, nil, denied, nil, false, nil},
		{"a label that was not exported before", admissionv1.Update, tracked, tracked, warning, nil, true, nil},
		{"what is refused has none", admissionv1.Create, plain, nil, denied, foretold{"conflict of x"}, false, nil},
		{"a finalizer", admissionv1.Update, finalizer, plain, warning, foretold{"conflict of x"}, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fixture{reviewer: &reviewer{verdict: tc.verdict}, conflict: tc.conflict}
			got := f.ask(t, PathValidateServiceExport, "", request(t, tc.op, "ServiceExport", tc.now, tc.was))
			if diff := cmp.Diff(tc.want, got.Warnings); diff != "" || got.Allowed != tc.allowed {
				t.Errorf("allowed: %v, warnings (-want +got):\n%s", got.Allowed, diff)
			}
		})
	}
}

func TestPortsThatTheServiceDoesNotHaveAreRefusedWithoutAskingAPolicy(t *testing.T) {
	const sharing = `{"metadata":{"name":"web","namespace":"shop","annotations":{"comity.dev/export-ports":"http"}}}`
	ports := func(names ...string) client.Object {
		s := service(corev1.ServiceTypeClusterIP)
		for i, name := range names {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: name, Port: int32(80 + i)})
		}
		return s
	}
	core := func(getError error, objects ...client.Object) client.Reader {
		return fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
				if getError != nil {
					return getError
				}
				return c.Get(ctx, key, into, opts...)
			},
		}).Build()
	}
	for _, tc := range []struct {
		name     string
		op       admissionv1.Operation
		was      any
		services client.Reader
		code     int32
		says     string
		reviewed bool
	}{
		{"it has the port", admissionv1.Create, nil, core(nil, ports("http", "admin")), http.StatusOK, "", true},
		{"it has not", admissionv1.Create, nil, core(nil, ports("web")), http.StatusBadRequest, `has no port named "http"; its ports: "web"`, false},
		{"it does not exist yet", admissionv1.Create, nil, core(nil), http.StatusOK, "", true},
		{"an update that names the port", admissionv1.Update, plain, core(nil, ports("web")), http.StatusBadRequest, `has no port named "http"`, false},
		{"an update of something else reads no Service", admissionv1.Update,
			`{"metadata":{"name":"web","namespace":"shop","annotations":{"comity.dev/export-ports":"http","x":"y"}}}`, nil, http.StatusOK, "", true},
		{"it cannot be read", admissionv1.Create, nil, core(errors.New("timeout")), http.StatusServiceUnavailable, "the ports of its Service could not be read: timeout", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fixture{reviewer: &reviewer{verdict: decision.Verdict{Outcome: decision.Allowed}}, live: tc.services}
			got := f.ask(t, PathValidateServiceExport, "", request(t, tc.op, "ServiceExport", sharing, tc.was))
			if got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.says) || (len(f.reviewer.asked) == 1) != tc.reviewed {
				t.Errorf("answer is %+v, reviewed %d times", got.Result, len(f.reviewer.asked))
			}
		})
	}
}

func TestTheReviewerGetsTheWholeRequest(t *testing.T) {
	f := &fixture{}
	f.ask(t, PathValidateServiceExport, "", request(t, admissionv1.Update, "ServiceExport", annotated, plain))
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	now, was := &mcsv1beta1.ServiceExport{ObjectMeta: meta}, &mcsv1beta1.ServiceExport{ObjectMeta: meta}
	now.Annotations = map[string]string{"comity.dev/export-to": "b"}
	was.TypeMeta = metav1.TypeMeta{APIVersion: "multicluster.x-k8s.io/v1alpha1", Kind: "ServiceExport"}
	want := []decision.Input{{
		Operation: decision.Update, UserInfo: &decision.UserInfo{Username: "eve"}, Object: now, OldObject: was,
	}}
	if diff := cmp.Diff(want, f.reviewer.asked); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

// ending notes whether a request that it reviews has ended.
type ending struct{ err error }

func (e *ending) Review(ctx context.Context, _ decision.Input) decision.Verdict {
	e.err = ctx.Err()
	return denied
}

func TestARequestIsAnsweredAlsoWhileTheProcessEnds(t *testing.T) {
	reviewed := &ending{errors.New("not reviewed")}
	all := Handlers(Options{Reviewer: reviewed, Registerer: prometheus.NewRegistry()})
	req := request(t, admissionv1.Create, "ServiceExport", plain, nil)
	req.UID = "u"
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &req})
	if err != nil {
		t.Fatal(err)
	}
	manager, stop := context.WithCancel(t.Context())
	stop()
	given := httptest.NewRequestWithContext(manager, http.MethodPost, PathValidateServiceExport, bytes.NewReader(body))
	given.Header.Set("Content-Type", "application/json")
	all[PathValidateServiceExport].ServeHTTP(httptest.NewRecorder(), given)
	if reviewed.err != nil {
		t.Errorf("the policies were asked with %v", reviewed.err)
	}
}

func TestMutateServiceExport(t *testing.T) {
	for _, tc := range []struct {
		name      string
		op        admissionv1.Operation
		now, was  any
		wantPatch string
		wantError string
	}{
		{name: "no label, no patch", op: admissionv1.Create, now: plain},
		{
			name: "the label moves", op: admissionv1.Create, now: labeled,
			wantPatch: `[{"op":"add","path":"/metadata/annotations","value":{"comity.dev/export-to":"b, c"}},{"op":"remove","path":"/metadata/labels"}]`,
		},
		{name: "two scopes are refused", op: admissionv1.Create, now: twoScopes, wantError: `label export-to is "c", but annotation`},
		{
			name: "an edited label wins over what it became", op: admissionv1.Update, now: twoScopes, was: annotated,
			wantPatch: `[{"op":"replace","path":"/metadata/annotations/comity.dev~1export-to","value":"c"},{"op":"remove","path":"/metadata/labels"}]`,
		},
		{name: "an export that is being deleted is left alone", op: admissionv1.Update, now: dying, was: plain},
		{name: "a deletion passes", op: admissionv1.Delete, was: twoScopes},
		{name: "what is no object is refused by name", op: admissionv1.Create, now: unreadable, wantError: "ServiceExport shop/web could not be read:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := (&fixture{}).ask(t, PathMutateServiceExport, "", request(t, tc.op, "ServiceExport", tc.now, tc.was))
			if tc.wantError != "" {
				if got.Allowed || got.Result.Code != http.StatusBadRequest || !strings.Contains(got.Result.Message, tc.wantError) {
					t.Fatalf("answer is %+v, want a bad request with %q", got.Result, tc.wantError)
				}
				return
			}
			if !got.Allowed {
				t.Fatalf("refused: %s", got.Result.Message)
			}
			if diff := cmp.Diff(tc.wantPatch, string(got.Patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

func service(kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Type: kind}}
}

func reader(t *testing.T, getError error, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := mcsv1beta1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if getError != nil {
				return getError
			}
			return c.Get(ctx, key, into, opts...)
		},
	}).Build()
}

func TestServiceTurningExternalName(t *testing.T) {
	exported := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	leaving := exported.DeepCopy()
	leaving.Finalizers, leaving.DeletionTimestamp = []string{"x/y"}, &metav1.Time{Time: time.Unix(1, 0)}

	for _, tc := range []struct {
		name     string
		now, was corev1.ServiceType
		exports  client.Reader
		wantCode int32
		reviewed bool
	}{
		{"while exported it is reviewed", corev1.ServiceTypeExternalName, corev1.ServiceTypeClusterIP, reader(t, nil, exported), http.StatusForbidden, true},
		{"while not exported it passes", corev1.ServiceTypeExternalName, corev1.ServiceTypeClusterIP, reader(t, nil), http.StatusOK, false},
		{"while its export is being deleted it passes", corev1.ServiceTypeExternalName, corev1.ServiceTypeClusterIP, reader(t, nil, leaving), http.StatusOK, false},
		{"one that is ExternalName already passes", corev1.ServiceTypeExternalName, corev1.ServiceTypeExternalName, reader(t, nil, exported), http.StatusOK, false},
		{"any other type passes", corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP, reader(t, nil, exported), http.StatusOK, false},
		{"if exports cannot be read it is refused", corev1.ServiceTypeExternalName, corev1.ServiceTypeClusterIP, reader(t, errors.New("timeout")), http.StatusServiceUnavailable, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fixture{live: tc.exports}
			got := f.ask(t, PathValidateService, "", request(t, admissionv1.Update, "Service", service(tc.now), service(tc.was)))
			if got.Result.Code != tc.wantCode || got.Allowed != (tc.wantCode == http.StatusOK) {
				t.Errorf("answer is %+v, want code %d", got.Result, tc.wantCode)
			}
			if reviewed := len(f.reviewer.asked) == 1; reviewed != tc.reviewed {
				t.Fatalf("reviewed: %v, want %v", reviewed, tc.reviewed)
			}
			if tc.reviewed {
				asked := f.reviewer.asked[0]
				if asked.Subject != decision.SubjectService || asked.Service.Spec.Type != tc.now || asked.Object.Name != "web" || asked.Operation != decision.Update {
					t.Errorf("asked %+v", asked)
				}
			}
		})
	}
}

func TestAnExportPolicyThatCannotBeCheckedNowMayBeTriedAgain(t *testing.T) {
	f := &fixture{checker: checker{fmt.Errorf("p.rego:1:1: %w", apierrors.NewServiceUnavailable("no process could be started"))}}
	policy := &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: policyv1alpha1.ExportPolicySpec{Rego: "x"}}
	got := f.ask(t, PathValidateExportPolicy, "", request(t, admissionv1.Create, "ExportPolicy", policy, nil))
	if got.Allowed || got.Result.Code != http.StatusServiceUnavailable || !strings.Contains(got.Result.Message, "try again") {
		t.Errorf("got %+v", got.Result)
	}
}

func TestExportPolicyMustCompile(t *testing.T) {
	policy := func(rego string) *policyv1alpha1.ExportPolicy {
		return &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: policyv1alpha1.ExportPolicySpec{Rego: rego}}
	}
	bad := checker{errors.New("mine.rego:3:1: unexpected token")}
	for _, tc := range []struct {
		name     string
		op       admissionv1.Operation
		now, was any
		checker  PolicyChecker
		want     string // "" for allowed
	}{
		{"one that compiles is stored", admissionv1.Create, policy("x"), nil, checker{}, ""},
		{"without a checker all are stored", admissionv1.Create, policy("x"), nil, nil, ""},
		{
			"one that does not is refused, with the place", admissionv1.Create, policy("x"), nil, bad,
			"ExportPolicy mine cannot be used:\nmine.rego:3:1: unexpected token\nRemedy: correct what the lines above name (mine.rego:row:column is a place in spec.rego); nothing that is stored was changed",
		},
		{"an update that leaves the spec alone passes", admissionv1.Update, policy("x"), policy("x"), bad, ""},
		{"a deletion passes", admissionv1.Delete, nil, policy("x"), bad, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := request(t, tc.op, "ExportPolicy", tc.now, tc.was)
			req.Namespace, req.Name = "", "mine"
			got := (&fixture{checker: tc.checker}).ask(t, PathValidateExportPolicy, "", req)
			if diff := cmp.Diff(tc.want, got.Result.Message); diff != "" || got.Allowed != (tc.want == "") {
				t.Errorf("allowed %v, message (-want +got):\n%s", got.Allowed, diff)
			}
		})
	}
}

// previewer notes of which policies a preview was made.
type previewer struct {
	err error
	of  []string
}

func (p *previewer) Check(_ context.Context, policy *policyv1alpha1.ExportPolicy) ([]string, error) {
	if p.err != nil {
		return nil, p.err
	}
	p.of = append(p.of, policy.Name)
	return []string{"would withdraw\n1 export"}, nil
}

func TestThePreviewOfAnExportPolicyIsInTheWarnings(t *testing.T) {
	policy := func(rego string) *policyv1alpha1.ExportPolicy {
		return &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: policyv1alpha1.ExportPolicySpec{Rego: rego}}
	}
	dying := policy("x")
	dying.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for _, tc := range []struct {
		name     string
		op       admissionv1.Operation
		now, was any
		refused  error
		want     []string
	}{
		{"of one that is created", admissionv1.Create, policy("x"), nil, nil, []string{"would withdraw 1 export"}},
		{"of one that is changed", admissionv1.Update, policy("y"), policy("x"), nil, []string{"would withdraw 1 export"}},
		{"not of one whose spec stays", admissionv1.Update, policy("x"), policy("x"), nil, nil},
		{"not of one that is refused", admissionv1.Create, policy("x"), nil, errors.New("x"), nil},
		{"not of one that is being deleted", admissionv1.Update, dying, policy("y"), nil, nil},
		{"not of a deletion", admissionv1.Delete, nil, policy("x"), nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := request(t, tc.op, "ExportPolicy", tc.now, tc.was)
			req.Namespace, req.Name = "", "mine"
			p := &previewer{err: tc.refused}
			got := (&fixture{checker: p}).ask(t, PathValidateExportPolicy, "", req)
			if diff := cmp.Diff(tc.want, got.Warnings); diff != "" || len(p.of) != len(tc.want) {
				t.Errorf("%d previews, warnings (-want +got):\n%s", len(p.of), diff)
			}
		})
	}
}

func TestAnswersComeBeforeTheAPIServerGivesUp(t *testing.T) {
	for _, tc := range []struct {
		query    string
		at, most time.Duration
	}{
		{"?timeout=3s", time.Second, 2 * time.Second},
		{"?timeout=10s", 5 * time.Second, 10 * time.Second * 2 / 3},
		{"?timeout=300ms", -time.Second, 200 * time.Millisecond},
		{"", time.Second, 2 * time.Second},
		{"?timeout=9999h", 19 * time.Second, 20 * time.Second},
		{"?x=y&timeout=9999h", 19 * time.Second, 20 * time.Second},
		{"?timeout=soon", time.Second, 2 * time.Second},
	} {
		t.Run("timeout "+tc.query, func(t *testing.T) {
			f := &fixture{}
			f.ask(t, PathValidateServiceExport, tc.query, request(t, admissionv1.Create, "ServiceExport", plain, nil))
			if f.reviewer.left <= tc.at || f.reviewer.left > tc.most {
				t.Errorf("the policies had %v, want more than %v and at most %v", f.reviewer.left, tc.at, tc.most)
			}
		})
	}
}

func TestALongUIDIsNotSentBack(t *testing.T) {
	for length, refused := range map[int]bool{36: false, maxUID: false, maxUID + 1: true, 200_000: true} {
		uid := strings.Repeat("u", length)
		body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"` + uid + `","operation":"DELETE"}}`
		given := httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathValidateServiceExport, strings.NewReader(body))
		given.Header.Set("Content-Type", "application/json")
		got := httptest.NewRecorder()
		(&fixture{}).hooks(t)[PathValidateServiceExport].ServeHTTP(got, given)
		if says := strings.Contains(got.Body.String(), "expected at most 128"); says != refused || strings.Contains(got.Body.String(), uid) == refused {
			t.Errorf("the answer to a uid of %d bytes has %d bytes: %.200s", length, got.Body.Len(), got.Body)
		}
	}
}

func TestAnswersAreMeasuredByOutcome(t *testing.T) {
	f := &fixture{registry: prometheus.NewRegistry(), reviewer: &reviewer{}}
	for _, verdict := range []decision.Verdict{{Outcome: decision.Allowed}, denied, denied, {}} {
		f.reviewer.verdict = verdict
		f.ask(t, PathValidateServiceExport, "", request(t, admissionv1.Create, "ServiceExport", plain, nil))
	}
	f.ask(t, PathValidateServiceExport, "", request(t, admissionv1.Create, "ServiceExport", unreadable, nil))

	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			got[family.GetName()+" "+labels["webhook"]+" "+labels["outcome"]] = m.GetHistogram().GetSampleCount()
			buckets := m.GetHistogram().GetBucket()
			if first, last := buckets[0].GetUpperBound(), buckets[len(buckets)-1].GetUpperBound(); first != 0.001 || last != 10 {
				t.Errorf("buckets from %v to %v s, want from 0.001 to 10", first, last)
			}
		}
	}
	const prefix = "comity_webhook_duration_seconds validate-serviceexport "
	want := map[string]uint64{prefix + "Allowed": 1, prefix + "Denied": 2, prefix + "NotEvaluated": 1, prefix + "Malformed": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
