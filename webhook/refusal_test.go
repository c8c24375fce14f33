// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
)

// event is one that was recorded.
type event struct{ object, kind, reason, action, note string }

// recorder keeps the events.
type recorder struct{ events []event }

func (r *recorder) Eventf(regarding, _ runtime.Object, kind, reason, action, note string, args ...any) {
	ref, ok := regarding.(*corev1.ObjectReference)
	if !ok {
		panic(fmt.Sprintf("an event on a %T", regarding))
	}
	r.events = append(r.events, event{
		strings.Join([]string{ref.APIVersion, ref.Kind, ref.Namespace, ref.Name}, " "), kind, reason, action, fmt.Sprintf(note, args...),
	})
}

func TestARefusalIsAnEventInTheNamespaceOfTheExport(t *testing.T) {
	exported := reader(t, nil, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	for _, tc := range []struct {
		name    string
		verdict decision.Verdict
		path    string
		dry     bool
		want    []event
	}{
		{"a denied export", denied, PathValidateServiceExport, false, []event{{
			"multicluster.x-k8s.io/v1beta1 ServiceExport shop web", "Warning", "PolicyDenied", "CREATE",
			"ServiceExport shop/web was refused by 1 policy:\n[p] no.",
		}}},
		{"a denied change of an exported Service", denied, PathValidateService, false, []event{{
			"multicluster.x-k8s.io/v1beta1 ServiceExport shop web", "Warning", "PolicyDenied", "UPDATE",
			"Service shop/web was refused by 1 policy, because ServiceExport shop/web exports it:\n[p] no.",
		}}},
		{"an export that could not be evaluated", decision.Verdict{Problem: "it took too long", Failed: []string{"p"}}, PathValidateServiceExport, false, []event{{
			"multicluster.x-k8s.io/v1beta1 ServiceExport shop web", "Warning", "NotEvaluated", "CREATE",
			"ServiceExport shop/web was refused because ExportPolicy p could not be evaluated: it took too long. " +
				"Remedy: have an administrator correct or create it (kubectl describe exportpolicy p)",
		}}},
		{"a dry run has no side effect", denied, PathValidateServiceExport, true, nil},
		{"nor has a dry run on a Service", denied, PathValidateService, true, nil},
		{"an allowed export is no event", decision.Verdict{Outcome: decision.Allowed}, PathValidateServiceExport, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			seen := &recorder{}
			f := &fixture{recorder: seen, live: exported, reviewer: &reviewer{verdict: tc.verdict}}
			req := request(t, admissionv1.Create, "ServiceExport", plain, nil)
			if tc.path == PathValidateService {
				req = request(t, admissionv1.Update, "Service", service(corev1.ServiceTypeExternalName), service(corev1.ServiceTypeClusterIP))
			}
			req.DryRun = ptr.To(tc.dry)
			f.ask(t, tc.path, "", req)
			if diff := cmp.Diff(tc.want, seen.events, cmp.AllowUnexported(event{})); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEventsOfRefusalsAreLimited(t *testing.T) {
	seen, clk := &recorder{}, testclock.NewFakePassiveClock(time.Unix(1000, 0))
	f := &fixture{recorder: seen, clock: clk}
	hooks := f.hooks(t)
	refuse := func(namespace, name string) {
		req := request(t, admissionv1.Create, "ServiceExport",
			fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q}}`, name, namespace), nil)
		req.Namespace, req.Name = namespace, name
		send(t, hooks[PathValidateServiceExport], PathValidateServiceExport, req)
	}
	count := func(want int, why string) {
		t.Helper()
		if len(seen.events) != want {
			t.Errorf("%s: %d events, want %d", why, len(seen.events), want)
		}
		seen.events = nil
	}
	for n := range 2 * maxLimiters {
		refuse("shop", fmt.Sprintf("web-%d", n))
	}
	count(namespaceBurst, "as many names as one likes")
	clk.SetTime(clk.Now().Add(namespaceInterval))
	refuse("shop", "web")
	count(1, "a while later")
	refuse("bank", "web")
	count(1, "another namespace meanwhile")
}

func TestANoteFitsAnEvent(t *testing.T) {
	for _, said := range []string{"x", "é", "日本"} {
		seen := &recorder{}
		long := decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "p", Message: strings.Repeat(said, 2000)}}}
		f := &fixture{recorder: seen, reviewer: &reviewer{verdict: long}}
		f.ask(t, PathValidateServiceExport, "", request(t, admissionv1.Create, "ServiceExport", plain, nil))
		if len(seen.events) != 1 {
			t.Fatalf("%d events", len(seen.events))
		}
		note := seen.events[0].note
		if len(note) > 1024 || len(note) < 1000 || !utf8.ValidString(note) || !strings.HasSuffix(note, "…") {
			t.Errorf("%d bytes, valid: %v: %s", len(note), utf8.ValidString(note), note)
		}
	}
}

func TestARefusalIsOneLineWithoutContentOfObjects(t *testing.T) {
	const secret = "s3cret-of-the-object"
	violation := func(policy, reason string) decision.Violation {
		return decision.Violation{Policy: policy, Reason: reason, Message: secret, Field: secret, Remedy: secret}
	}
	for _, tc := range []struct {
		name    string
		verdict decision.Verdict
		object  string
		want    []string
	}{
		{
			"a denial names its policies", decision.Verdict{Outcome: decision.Denied, Digest: "sha256:1", Violations: []decision.Violation{
				violation("p", "A"), violation("p", "A"), violation("q", "B"),
			}}, plain,
			[]string{`"outcome"="Denied"`, `"user"="eve"`, `"policies"="p,q"`, `"reasons"="A,B"`, `"digest"="sha256:1"`, `"kind"="ServiceExport"`, `"namespace"="shop"`, `"name"="web"`, `"operation"="CREATE"`},
		},
		{
			"a failure names the policy and not what it read", decision.Verdict{Digest: "sha256:1", Failed: []string{"p"}, Problem: "to_number: " + secret}, plain,
			[]string{`"outcome"="NotEvaluated"`, `"policies"="p"`, `"user"="eve"`},
		},
		{
			"a failure before the policies is told", decision.Verdict{Problem: "Namespace shop could not be read"}, plain,
			[]string{`"outcome"="NotEvaluated"`, `"problem"="Namespace shop could not be read"`},
		},
		{
			"an object that cannot be read is not shown", denied, `{"metadata":{"name":"web","labels":{"a":{"` + secret + `":1}}}}`,
			[]string{`"outcome"="Malformed"`, `"user"="eve"`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var lines []string
			log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
			f := &fixture{reviewer: &reviewer{verdict: tc.verdict}, log: log}
			got := f.ask(t, PathValidateServiceExport, "", request(t, admissionv1.Create, "ServiceExport", tc.object, nil))
			if len(lines) != 1 {
				t.Fatalf("lines %q, want one", lines)
			}
			for _, want := range tc.want {
				if !strings.Contains(lines[0], want) {
					t.Errorf("%s is not in %s", want, lines[0])
				}
			}
			if strings.Contains(lines[0]+fmt.Sprint(got.AuditAnnotations), secret) {
				t.Errorf("content of the object is in %s or in %v", lines[0], got.AuditAnnotations)
			}
		})
	}
	t.Run("an allowed request is no line", func(t *testing.T) {
		lines := 0
		log := funcr.New(func(string, string) { lines++ }, funcr.Options{})
		f := &fixture{reviewer: &reviewer{verdict: decision.Verdict{Outcome: decision.Allowed}}, log: log}
		f.ask(t, PathValidateServiceExport, "", request(t, admissionv1.Create, "ServiceExport", plain, nil))
		if lines != 0 {
			t.Errorf("%d lines", lines)
		}
	})
}
