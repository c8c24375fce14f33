// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/cert"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

func TestTheReportHasTheWorstFirstAndEachFaultWithItsFix(t *testing.T) {
	report := newReport([]finding.Finding{
		{Severity: finding.OK, Check: "agent", Cluster: "a"},
		{Severity: finding.Warning, Check: "clocks", Cluster: "b", Reason: "ClockSkew", Message: "late", Fix: "set it", Docs: "D"},
		{Severity: finding.NotRead, Check: "tokens", Cluster: "a", Message: `context "a": forbidden`, Fix: "ask", Docs: "D"},
		{Severity: finding.OK, Check: "agent", Cluster: "b"},
		{Severity: finding.Error, Check: "DNS", Cluster: "b", Object: "ConfigMap kube-system/coredns", Reason: "ZoneMissing", Message: "no zone", Fix: "enable it", Docs: "D"},
	})
	if report.Healthy {
		t.Error("healthy")
	}
	var out bytes.Buffer
	report.print(command.NewEnv(genericiooptions.IOStreams{Out: &out, ErrOut: &out}))
	const want = `Error:
  b: DNS: ConfigMap kube-system/coredns (ZoneMissing): no zone
      fix:  enable it
      docs: D
Warning:
  b: clocks (ClockSkew): late
      fix:  set it
      docs: D
NotRead:
  a: tokens: forbidden
      fix:  ask
      docs: D
OK:
  agent: a, b
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !newReport([]finding.Finding{{Severity: finding.Warning}, {Severity: finding.OK}}).Healthy {
		t.Error("a warning makes a clusterset unhealthy")
	}
}

func TestEachCheckHasItsOwnNameAndSection(t *testing.T) {
	names := sets.New[string]()
	for _, k := range checks {
		page, section, _ := strings.Cut(k.docs, "#")
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", page))
		if err != nil || names.Has(k.name) || k.when == 0 {
			t.Errorf("check %q, %b: %v", k.name, k.when, err)
		}
		names.Insert(k.name)
		if !slices.ContainsFunc(regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1), func(heading []string) bool {
			return section == regexp.MustCompile(`[^a-z0-9-]`).ReplaceAllString(strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-"), "")
		}) {
			t.Errorf("check %q: no section %s", k.name, k.docs)
		}
	}
}

// serving is a certificate for a webhook, valid from an hour ago.
func serving(t *testing.T, host string, valid time.Duration) (chain []*x509.Certificate, ca []byte) {
	t.Helper()
	ca, _, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: host, MaxAge: valid})
	if err != nil {
		t.Fatal(err)
	}
	if chain, err = cert.ParseCertsPEM(ca); err != nil {
		t.Fatal(err)
	}
	return chain, ca
}

func TestCertificateFault(t *testing.T) {
	const name = "comity-webhook.comity-system.svc"
	const day = 24 * time.Hour
	chain, ca := serving(t, name, 90*day)
	other, otherCA := serving(t, "other.comity-system.svc", 90*day)
	for _, test := range []struct {
		name  string
		chain []*x509.Certificate
		ca    []byte
		after time.Duration
		fault string
	}{
		{"good", chain, ca, 0, ""},
		{"expired", chain, ca, 91 * day, "certificate has expired"},
		{"of another authority", chain, otherCA, 0, "unknown authority"},
		{"for another Service", other, otherCA, 0, "not comity-webhook.comity-system.svc"},
	} {
		t.Run(test.name, func(t *testing.T) {
			service := &admissionregistrationv1.ServiceReference{Namespace: "comity-system", Name: "comity-webhook"}
			hooks := []hook{{"ValidatingWebhookConfiguration comity", admissionregistrationv1.WebhookClientConfig{CABundle: test.ca, Service: service}}}
			if got := certificateFault(test.chain, hooks, time.Now().Add(test.after)); (got == "") != (test.fault == "") || !strings.Contains(got, test.fault) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// clusterset are clusters that were read, with the contexts x, y and z.
func clusterset(ids ...model.ClusterID) []*cluster {
	var all []*cluster
	for i, id := range ids {
		c := &cluster{Site: &agent.Site{Context: string(rune('x' + i)), Target: &command.Target{}}}
		c.Agent.ID, c.status.Clusters = id, []status.Cluster{{State: status.Running}}
		all = append(all, c)
	}
	for _, c := range all {
		c.all = all
	}
	return all
}

func TestClocksAreComparedWithTheFirstThatAnswers(t *testing.T) {
	all := clusterset("a", "b", "c")
	all[0].serverErr = errors.New("no answer")
	all[1].ahead, all[2].ahead = -50*time.Second, 50*time.Second
	for i, want := range []string{"", "", "differs by 1m40s from that of cluster b"} {
		found, err := clocks(context.Background(), all[i])
		if (err != nil) != (i == 0) || (len(found) == 0) != (want == "") || want != "" && !strings.Contains(found[0].Message, want) {
			t.Errorf("cluster %d: %v, %v", i, found, err)
		}
	}
}

func TestRangesAreComparedOnceAndNotWithAHub(t *testing.T) {
	all := clusterset("a", "b", "h")
	for _, c := range all {
		c.ranges = join.Ranges{Pods: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	}
	all[2].status.Clusters[0].State = status.Hub
	all[0].objects.Peers = []v1alpha1.Peer{{ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: v1alpha1.PeerSpec{AcceptedCIDRs: []string{"10.1.9.0/24"}}}}
	all = append([]*cluster{all[2]}, all[:2]...)
	for i, want := range []string{"", "pod range 10.1.9.0/24 of cluster far", "pod range 10.1.0.0/16 of cluster a"} {
		all[i].all = all
		if found, err := overlaps(context.Background(), all[i]); i > 0 && (len(found) != 1 || !strings.Contains(found[0].Message, want)) || err != nil {
			t.Errorf("cluster %s: %v, %v", all[i].ID(), found, err)
		}
	}
	all[1].ranges = join.Ranges{}
	if _, err := overlaps(context.Background(), all[1]); err == nil {
		t.Error("a cluster whose Pod range is not known was compared")
	}
}

func TestWhichVersionOfKubernetesIsTooOld(t *testing.T) {
	c := clusterset("a")[0]
	for text, tooOld := range map[string]bool{"v1.31.9": true, "v1.32.0": false, "v1.36.3+k3s1": false, "v1.33.1-gke.100": false, "": true} {
		c.version = text
		if found, err := kubernetesVersion(context.Background(), c); (len(found) > 0) != tooOld || err != nil {
			t.Errorf("%q: %v, %v", text, found, err)
		}
	}
	c.serverErr = errors.New("no answer")
	for text, tooOld := range map[string]bool{"v1.27.0": true, "v1.36.0": false} { // the older one has no SelfSubjectReview
		c.version = text
		if found, err := kubernetesVersion(context.Background(), c); (len(found) > 0) != tooOld || err != nil {
			t.Errorf("%q, without a clock: %v, %v", text, found, err)
		}
	}
	c.version = ""
	if found, err := kubernetesVersion(context.Background(), c); len(found) > 0 || err == nil {
		t.Errorf("a version that was not read: %v, %v", found, err)
	}
}

func TestWhatFixesAPeer(t *testing.T) {
	for _, test := range []struct{ message, reason, fix string }{
		{"Connected is False (Unauthorized): refused", "Unauthorized", "kubectl comity join y x"},
		{"Connected is False (Lost)", "Lost", "start the agent of cluster b: kubectl --context y get pods -A -l app.kubernetes.io/name=comity"},
		{"Connected is False (Unreachable): timeout", "Unreachable", "if the API server of cluster b has moved: kubectl comity join y x --server b=https://HOST:PORT; otherwise who owns the network"},
		{"Accepted is False (ClusterIDReused): x", "ClusterIDReused", "kubectl comity join y x --replace"},
		{"Complete is False (Missing): 3 exports; kubectl comity confirm missing b", "Missing", "follow the message"},
		{"there is no Peer; run kubectl comity leave --id b x", "", "follow the message"},
		{"WithinLimits is False (LimitExceeded)", "LimitExceeded", "who owns cluster b changes what it publishes, or runs the same version of Comity"},
	} {
		c := clusterset("a", "b")[0]
		c.status.Problems = []finding.Finding{{Object: "agent"}, {Object: "Peer b", Message: test.message, Reason: test.reason}}
		found, _ := connections(context.Background(), c)
		want := []finding.Finding{{Object: "Peer b", Reason: test.reason, Message: test.message, Fix: test.fix}}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}
