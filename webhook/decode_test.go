// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/randfill"

	"github.com/comity-mcs/comity/policies/decision"
)

func TestOfAnExportOnlyTheManagedFieldsAreNotRead(t *testing.T) {
	for seed := range int64(50) {
		var want, got mcsv1beta1.ServiceExport
		randfill.NewWithSeed(seed).NilChance(0.2).NumElements(1, 3).Funcs(
			func(t *metav1.Time, c randfill.Continue) { t.Time = time.Unix(c.Int63n(1e10), 0) },
			func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString(`{"f:metadata":{}}`) },
		).Fill(&want)
		raw, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.ManagedFields) != 0 {
			t.Error("the managedFields were read")
		}
		// What is omitted is empty again, whichever way it was.
		want.ManagedFields = nil
		given, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = json.Marshal(want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(raw), string(given)); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}

// allocated is how many bytes f allocates, whether they are still used or not.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func updating(object, was string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"UPDATE","namespace":"shop","name":"web",` +
		`"object":` + object + `,"oldObject":` + was + `}}`
}

func TestARequestAllocatesBoundedMemory(t *testing.T) {
	// list is a list of n times the same, in an object that f gives the list.
	list := func(format, item string, n int) string {
		return fmt.Sprintf(format, strings.TrimSuffix(strings.Repeat(item+",", n), ","))
	}
	const (
		ports      = `{"spec":{"type":"ExternalName","ports":[%s]}}`
		conditions = `{"status":{"conditions":[%s]}}`
		owners     = `{"metadata":{"ownerReferences":[%s]}}`
		managed    = `{"metadata":{"managedFields":[%s]}}`
		scope      = `{"metadata":{"annotations":{"comity.dev/export-to":"%s"}}}`
	)
	for _, tc := range []struct {
		name, path, object string
		refused            bool
		most               uint64
	}{
		{"2.4 million ports", PathValidateService, list(ports, "{}", 2_400_000), true, 20 << 20},
		{"2.4 million conditions", PathValidateServiceExport, list(conditions, "{}", 2_400_000), true, 20 << 20},
		{"2.4 million owners, to be mutated", PathMutateServiceExport, list(owners, "{}", 2_400_000), true, 20 << 20},
		{"2.4 million managers of a policy", PathValidateExportPolicy, list(managed, "{}", 2_400_000), true, 20 << 20},
		{"a scope of three million clusters", PathValidateServiceExport, list(scope, "a", 3_000_000), true, 20 << 20},
		{"as many ports as are decoded", PathValidateService, list(ports, "{}", maxElements/2-20), false, 40 << 20},
		{"as many ports as are decoded in a small slot", PathValidateService, list(ports, "{}", smallElements/2-20), false, 1 << 20},
		{"as many managers as pass", PathMutateServiceExport, list(managed, "{}", maxElements/2-20), false, 40 << 20},
		{"as many conditions as pass, in a policy", PathValidateExportPolicy, list(conditions, "{}", maxElements/2-20), false, 40 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fixture{live: reader(t, nil), reviewer: &reviewer{verdict: decision.Verdict{Outcome: decision.Allowed}}}
			hook, body := f.hooks(t)[tc.path], updating(tc.object, "{}")
			given := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tc.path, strings.NewReader(body))
			given.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			used := allocated(func() { hook.ServeHTTP(answer, given) })
			t.Logf("%d bytes for a body of %d", used, len(body))
			if used > tc.most {
				t.Errorf("%d bytes for a body of %d, want at most %d", used, len(body), tc.most)
			}
			if got := answer.Code == http.StatusRequestEntityTooLarge && strings.Contains(answer.Body.String(), "expected at most 100000, because"); got != tc.refused {
				t.Errorf("code %d: %s", answer.Code, answer.Body)
			}
		})
	}
}

// fields are managedFields of n managers that own all ports and annotations.
func fields(managers, ports, annotations int) []metav1.ManagedFieldsEntry {
	var text strings.Builder
	text.WriteString(`{"f:metadata":{"f:annotations":{".":{}`)
	for i := range annotations {
		fmt.Fprintf(&text, `,"f:example.com/annotation-%d":{}`, i)
	}
	text.WriteString(`}},"f:spec":{"f:ports":{".":{}`)
	for i := range ports {
		fmt.Fprintf(&text, `,"k:{\"port\":%d,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}`, i+1)
	}
	text.WriteString(`}}}`)
	var out []metav1.ManagedFieldsEntry
	for i := range managers {
		out = append(out, metav1.ManagedFieldsEntry{Manager: fmt.Sprint("manager-", i), Operation: "Update", FieldsV1: metav1.NewFieldsV1(text.String())})
	}
	return out
}

func TestLargeObjectsOfUsersPass(t *testing.T) {
	annotations := map[string]string{}
	for i := range 250 {
		annotations[fmt.Sprint("example.com/annotation-", i)] = strings.Repeat("a,b{}", 40)
	}
	of := func(kind corev1.ServiceType) *corev1.Service {
		s := service(kind)
		s.Annotations, s.ManagedFields = annotations, fields(3, 500, 250)
		for i := range 500 {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("port-", i), Protocol: "TCP", Port: int32(i + 1), TargetPort: intstr.FromInt(i + 1)})
		}
		return s
	}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: annotations, ManagedFields: fields(10, 0, 250)}}
	exported := reader(t, nil, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	allow := decision.Verdict{Outcome: decision.Allowed}

	f := &fixture{live: exported, reviewer: &reviewer{verdict: allow}}
	got := f.ask(t, PathValidateService, "", request(t, admissionv1.Update, "Service", of(corev1.ServiceTypeExternalName), of(corev1.ServiceTypeClusterIP)))
	if got == nil || !got.Allowed || len(f.reviewer.asked) != 1 || len(f.reviewer.asked[0].Service.Spec.Ports) != 500 || f.reviewer.asked[0].Service.ManagedFields != nil {
		t.Errorf("Service: %d reviews, answer %+v", len(f.reviewer.asked), got)
	}
	f = &fixture{reviewer: &reviewer{verdict: allow}}
	got = f.ask(t, PathValidateServiceExport, "", request(t, admissionv1.Update, "ServiceExport", export, plain))
	if got == nil || !got.Allowed || len(f.reviewer.asked) != 1 || len(f.reviewer.asked[0].Object.Annotations) != 250 {
		t.Errorf("ServiceExport: %d reviews, answer %+v", len(f.reviewer.asked), got)
	}
	if got := f.ask(t, PathMutateServiceExport, "", request(t, admissionv1.Update, "ServiceExport", export, plain)); got == nil || !got.Allowed {
		t.Errorf("ServiceExport, to be mutated: %+v", got)
	}
}
