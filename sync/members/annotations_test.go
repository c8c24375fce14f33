// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// A record may name 2,000 slices. However many a peer publishes, no more are opened.
func TestNoMoreSlicesAreReadThanARecordMayName(t *testing.T) {
	w := newWorld(t)
	w.server.put("exportrecords", record(shared, 1))
	w.join()
	for i := range 2003 {
		s := sliceOf(1, "10.1.0.1")
		s.Name = fmt.Sprintf("%s-%04d", s.Name, 9999-i)
		s.Annotations[model.AnnotationSourceSlice] = fmt.Sprintf("web-%04d", 9999-i)
		w.server.put("endpointslices", s)
	}
	var got []*discoveryv1.EndpointSlice
	var problems []model.Problem
	w.await("they are read", func() bool {
		got, problems = w.set.Slices("b", keyOf(1))
		return len(problems) == 1 && strings.Contains(problems[0].Message, "publishes 3 ")
	})
	if len(got) != 2000 || got[0].Annotations[model.AnnotationSourceSlice] != "web-7997" || problems[0].Cluster != "b" ||
		problems[0].Reason != model.ReasonLimitExceeded || !strings.Contains(problems[0].Message, "publishes 3 EndpointSlices of shop/web-1 more than the 2000") {
		t.Errorf("the first one is %s, problems %v", got[0].Annotations, problems)
	}
}

func TestOnlyAcceptedAddressesAreGivenAndTheRestIsNamed(t *testing.T) {
	w := newWorld(t)
	w.set.opts.LocalCluster = func() model.LocalCluster {
		return model.LocalCluster{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.9.0/24")}}
	}
	w.server.put("exportrecords", record(shared, 1))
	w.server.put("endpointslices", sliceOf(1, "10.1.0.1", "10.1.9.1", "10.2.0.1", "127.0.0.1"))
	w.join()
	look := func() (addresses, reasons []string) {
		slices, problems := w.set.Slices("b", keyOf(1))
		for _, s := range slices {
			for _, e := range s.Endpoints {
				addresses = append(addresses, e.Addresses...)
			}
		}
		for _, p := range problems {
			if p.Cluster != "b" {
				t.Errorf("a problem of cluster %q", p.Cluster)
			}
			reasons = append(reasons, p.Reason)
		}
		return addresses, reasons
	}
	addresses, reasons := look()
	if diff := cmp.Diff([]string{"10.1.0.1"}, addresses); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{model.ReasonAddressOverlap, model.ReasonAddressNotAccepted, model.ReasonInvalidEndpoints}, reasons); diff != "" {
		t.Error(diff)
	}
	told, connection := w.times("cluster b"), w.active()
	accept := func(text string) {
		s := w.server.secret()
		s.Annotations[model.AnnotationAcceptedCIDRs] = text
		w.secrets(s)
	}
	accept("10.1.0.0/16, 10.2.0.0/16")
	if addresses, _ := look(); !slices.Equal(addresses, []string{"10.1.0.1", "10.2.0.1"}) {
		t.Errorf("got %q after more was accepted", addresses)
	}
	if w.times("cluster b") != told+1 || w.active() != connection {
		t.Error("it was not told, or made a new connection")
	}
	accept("10.1.0.0/16, 10.2.0.1/16")
	if addresses, _ := look(); !slices.Equal(addresses, []string{"10.1.0.1", "10.2.0.1"}) {
		t.Errorf("got %q after the list became malformed", addresses)
	}
	accept("10.1.0.0/16, 10.2.0.1/16")
	if diff := cmp.Diff([]string{"Warning InvalidAcceptedCIDRs"}, w.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if s := w.set.States()[0]; s.Reason != ReasonInvalidAcceptedCIDRs || !strings.Contains(s.Message, `item 2, " 10.2.0.1/16", is not a CIDR`) {
		t.Errorf("got %+v", s)
	}
}

func TestParseAccepted(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, " ": 0, "10.0.0.0/8": 1, "10.0.0.0/8,fd00::/8": 2, " 10.0.0.0/8 , fd00::/8 ": 2, "0.0.0.0/0": 1,
		"10.0.0.0": -1, "10.0.0.0/8,": -1, ",": -1, "10.0.0.1/8": -1, "::ffff:10.0.0.0/104": -1, "10.0.0.0/33": -1, "fe80::%eth0/64": -1,
		strings.Repeat("10.0.0.0/8,", 256) + "10.0.0.0/8": -1,
	} {
		got, err := parseAccepted(text)
		if (err != nil) != (want < 0) || (want >= 0 && len(got) != want) || (err != nil && got != nil) {
			t.Errorf("%.60q: got %v, %v", text, got, err)
		}
	}
}

func TestAnIDThatAnotherClusterUsesNowIsRefusedAndAllIsKept(t *testing.T) {
	w := exporting(t, 2)
	w.server.put("memberrecords", memberRecord("uid-other"))
	w.await("it is refused", func() bool { return !w.member().Synced })
	w.says("Warning ClusterIDReused", "uid-other", "uid-b", model.AnnotationClusterUID)
	w.server.put("memberrecords", memberRecord("uid-b"))
	w.await("the first one is read again", func() bool { return w.member().Synced })
	w.server.put("memberrecords", memberRecord(""))
	w.await("one that does not say is not believed", func() bool { return !w.member().Synced })
}

// The Lease of a cluster that has taken the id over says nothing of the first one.
func TestTheLeaseOfAnotherClusterIsNotThePeers(t *testing.T) {
	w := exporting(t, 1)
	w.renew(2)
	w.server.put("memberrecords", memberRecord("uid-other"))
	w.await("it is refused", func() bool { return !w.member().Synced })
	for s := 3; s < 50; s++ {
		w.server.put("leases", lease(s))
		w.pass(1)
	}
	if c := w.member().Liveness; c.State != model.Stale || c.Reason != ReasonClusterIDReused {
		t.Errorf("got %+v", c)
	}
}

func TestARotatedSecretThatLeadsToAnotherClusterReplacesNothing(t *testing.T) {
	w := exporting(t, 1)
	other := newRemoteServer(t)
	other.put("memberrecords", memberRecord("uid-other"))
	s := other.secret()
	s.Annotations[model.AnnotationClusterUID] = "uid-b"
	before := w.active()
	w.secrets(s)
	w.await("it is refused", func() bool { return w.set.States()[0].Reason == ReasonClusterIDReused })
	if w.active() != before || len(w.set.Exports(keyOf(0))) != 1 || !w.member().Synced {
		t.Error("the connection was replaced")
	}
	// The administrator wants it so.
	noted := s
	delete(s.Annotations, model.AnnotationClusterUID)
	noted.Annotations = map[string]string{model.AnnotationClusterUID: "uid-b"}
	w.secrets(noted)
	w.secrets(s)
	w.await("it is read", func() bool { return w.active() != before })
}

func TestTheClusterOfASecretIsNotedOnce(t *testing.T) {
	w := exporting(t, 1)
	s := w.server.secret()
	local := fake.NewClientBuilder().WithObjects(&s).Build()
	cached := &corev1.Secret{}
	if err := local.Get(t.Context(), client.ObjectKeyFromObject(&s), cached); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.set.unrecorded:
	default:
		t.Error("the leader is not woken")
	}
	k := &tokenRefresher{set: w.set, client: local}
	m := k.readable()[0]
	if err := k.recordCluster(t.Context(), cached, m.uid); err != nil {
		t.Fatal(err)
	}
	if err := k.recordCluster(t.Context(), cached, "uid-other"); err == nil {
		t.Error("a Secret that changed meanwhile was written")
	}
	if err := local.Get(t.Context(), client.ObjectKeyFromObject(&s), cached); err != nil {
		t.Fatal(err)
	}
	if got := cached.Annotations[model.AnnotationClusterUID]; got != "uid-b" {
		t.Errorf("noted %q", got)
	}
	version := cached.ResourceVersion
	if err := k.recordCluster(t.Context(), cached, "uid-other"); err != nil {
		t.Fatal(err)
	}
	if cached.ResourceVersion != version || cached.Annotations[model.AnnotationClusterUID] != "uid-b" {
		t.Error("noted twice")
	}
}

func TestReportsAreReadAndTold(t *testing.T) {
	w := newWorld(t)
	k := keyOf(1)
	report := &exchangev1alpha1.ImportRecord{
		TypeMeta:   metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: "ImportRecord"},
		ObjectMeta: metav1.ObjectMeta{Namespace: model.ScopedExchangeNamespace("b", "a"), Name: model.RecordName(k.Namespace, k.Name)},
		Spec: exchangev1alpha1.ImportRecordSpec{
			Service: exchangev1alpha1.ServiceReference{Namespace: k.Namespace, Name: k.Name}, ExportUID: "uid", Imported: true,
			Reason: model.ReasonImported, Since: metav1.NewTime(begun),
		},
	}
	w.join()
	w.server.put("importrecords", report)
	w.await("it is told", func() bool { return w.times("report "+k.String()) == 1 })
	want := []model.Report{{Cluster: "b", ExportUID: "uid", Imported: true, Reason: model.ReasonImported, Since: begun}}
	if diff := cmp.Diff(want, w.set.Reports(k)); diff != "" {
		t.Error(diff)
	}
	if got := fmt.Sprint(w.set.Reports(keyOf(2))); got != "[]" {
		t.Errorf("a report of another export: %s", got)
	}
}

// With many reports their list comes later than all the rest. Nobody waits for
// it, and nobody takes what it will bring for what the peer does not say.
func TestAPeerHasNotReportedBeforeItsReportsWereListed(t *testing.T) {
	w := newWorld(t)
	slow := make(chan struct{})
	w.server.refuse = func(resource string) (int, string) {
		if resource == "importrecords" {
			<-slow
		}
		return 0, ""
	}
	w.join()
	if w.member().Reported {
		t.Error("it counts as reported before it was")
	}
	all := w.times("report /")
	close(slow)
	w.await("it has reported", func() bool { return w.member().Reported })
	w.await("it is told that anything may have", func() bool { return w.times("report /") == all+1 })
}

func TestLabelsOfTheSecretAreProperties(t *testing.T) {
	w := newWorld(t)
	w.join()
	told := w.times("cluster b")
	s := w.server.secret()
	s.Labels["region"] = "eu"
	w.secrets(s)
	if w.member().Labels["region"] != "eu" || w.times("cluster b") != told+1 {
		t.Errorf("got %v, told %d times", w.member().Labels, w.times("cluster b")-told)
	}
}
