// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func TestBad(t *testing.T) {
	for _, test := range []struct {
		kind   string
		status metav1.ConditionStatus
		reason string
		want   bool
	}{
		{"Ready", "True", "Exported", false}, {"Ready", "False", "Pending", false}, {"Ready", "False", "Failed", true},
		{"Conflict", "False", "NoConflicts", false}, {"Conflict", "True", "PortConflict", true},
		{"Available", "Unknown", "Pending", false}, {"Available", "False", "Lost", true}, {"Available", "True", "Drained", false}, {"TakeoverHeld", "True", "TakeoverHeld", true},
	} {
		if got := bad(metav1.Condition{Type: test.kind, Status: test.status, Reason: test.reason}); got != test.want {
			t.Errorf("%s %s (%s) is bad: %v", test.kind, test.status, test.reason, got)
		}
	}
}

// The ages in the list are all that is known of who waits, so two clusters may seem to.
func TestAnImportForWhichTwoClustersMayWaitIsOneProblem(t *testing.T) {
	list := model.List{Formed: noon, Entries: []model.Entry{
		{SourceExport: model.SourceExport{Cluster: "b", UID: "u", CreatedAt: noon}}, {SourceExport: model.SourceExport{Cluster: "c", UID: "v", CreatedAt: noon.Add(-time.Hour)}}, {SourceExport: model.SourceExport{Cluster: "d", UID: "w", CreatedAt: noon.Add(-time.Minute)}},
	}}
	p := &part{cluster: Cluster{Context: "a"}}
	p.addService(mcsv1beta1.ServiceImportKindName, &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{model.AnnotationList: list.String()}},
	}, []metav1.Condition{condition.TakeoverHeld(model.ReasonTakeoverHeld, "c waits")})
	want := []finding.Finding{{Severity: finding.Error, Cluster: "a", Object: "ServiceImport shop/web", Message: "TakeoverHeld is True (TakeoverHeld): c waits", Reason: "TakeoverHeld",
		Fix: "kubectl comity confirm takeover --all --from c --context a"}}
	if diff := cmp.Diff(want, causes([]*part{p})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FAULT 49: a cause that concerns a hundred exports is one line.
func TestExportsWithTheSameProblemAreOneLine(t *testing.T) {
	p := &part{cluster: Cluster{Context: "a"}}
	for _, name := range []string{"web", "api", "db"} {
		p.addService(mcsv1beta1.ServiceExportKindName, export(name), []metav1.Condition{{Type: "Available", Status: metav1.ConditionFalse, Reason: "TakeoverHeld", Message: name + " waits"}})
	}
	p.addService(mcsv1beta1.ServiceExportKindName, export("web"), []metav1.Condition{{Type: "Conflict", Status: metav1.ConditionTrue, Reason: "PortConflict"}})
	want := []finding.Finding{
		{Severity: finding.Error, Cluster: "a", Object: "ServiceExport shop/web", Message: "Available is False (TakeoverHeld): web waits", Reason: "TakeoverHeld", Affects: 2},
		{Severity: finding.Error, Cluster: "a", Object: "ServiceExport shop/web", Message: "Conflict is True (PortConflict)", Reason: "PortConflict"},
	}
	if diff := cmp.Diff(want, causes([]*part{p})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func export(name string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
}

func sample() Report {
	at := func(minutes int) *metav1.Time {
		return &metav1.Time{Time: noon.Add(time.Duration(minutes) * time.Minute)}
	}
	is := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: *at(-5)}
	}
	return Report{
		Clusters: []Cluster{
			{Context: "prod-a", ID: "a", ClusterSet: "example", Version: "v0.2.0", Exchange: "mesh", State: Running, Since: at(-90),
				CertificateExpires: at(60 * 24 * 30),
				Peers: []Peer{
					{ID: "b", State: Connected, Since: at(-30), TokenExpires: at(600)},
					{ID: "c", State: Lost, Since: at(-10), TokenExpires: at(-10), Message: "run kubectl comity join"},
				}},
			{Context: "prod-b", State: Unreachable, Message: "no route"},
		},
		Services: []Service{
			{Context: "prod-a", Cluster: "a", Kind: mcsv1beta1.ServiceExportKindName, Namespace: "shop", Name: "web", Conditions: []metav1.Condition{
				is("Valid", "True", "Valid"), is("Ready", "True", "Exported"), is("Conflict", "False", "NoConflicts"),
				is("Admitted", "True", "Admitted"), is("Available", "False", "NamespaceMissing"),
			}},
			{Context: "prod-a", Cluster: "a", Kind: mcsv1beta1.ServiceImportKindName, Namespace: "shop", Name: "web", Conditions: []metav1.Condition{is("Ready", "True", "Ready")}},
		},
		Problems: []finding.Finding{
			{Cluster: "prod-a", Object: "Peer c", Message: "Lost: run kubectl comity join", Affects: 12},
			{Cluster: "prod-b", Object: "cluster", Message: "context \"prod-b\": no route"},
			{Object: "versions", Message: "they differ"},
		},
	}
}

func TestPrint(t *testing.T) {
	const want = `Problems:
  prod-a: Peer c (affects 12 objects): Lost: run kubectl comity join
  prod-b: cluster: no route
  versions: they differ

CONTEXT   CLUSTER   CLUSTERSET   COMITY   EXCHANGE   AGENT         SINCE   CERTIFICATE
prod-a    a         example      v0.2.0   mesh       Running       90m     ends in 30d
prod-b    -         -            -        -          Unreachable   -       -

CLUSTER   PEER   STATE       SINCE   TOKEN
a         b      Connected   30m     ends in 10h
a         c      Lost        10m     expired

NAMESPACE   NAME   KIND            CLUSTER   VALID   READY   CONFLICT   ADMITTED   AVAILABLE
shop        web    ServiceExport   a         True    True    False      True       False (NamespaceMissing)
shop        web    ServiceImport   a         -       True    -          -          -
`
	var out bytes.Buffer
	sample().print(command.NewEnv(genericiooptions.IOStreams{Out: &out}), noon)
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A silent peer was eight long lines in two clusters.
func TestAProblemIsACause(t *testing.T) {
	conditionOf := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	in := func(context string, exports ...metav1.Condition) *part {
		p := newPart(&agent.Site{Context: context, Agent: agent.Agent{Pod: &corev1.Pod{}}}, noon)
		for _, id := range []string{"b", "d"} {
			peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: id}}
			peer.Status.Conditions = []metav1.Condition{conditionOf("Connected", "Lost", "no heartbeat of "+id)}
			p.addPeer(peer)
		}
		p.addService(mcsv1beta1.ServiceExportKindName, export("web"), exports)
		return p
	}
	lost := conditionOf("Available", "Lost", "imported by 0 of 2 clusters; Lost in a, b: it may be gone")
	missing := conditionOf("Available", "NamespaceMissing", "in b")
	stopped := &part{cluster: Cluster{Context: "d", ID: "d", State: NotRunning}}
	stopped.problem("agent", "no replica leads").cause = agentOf("d")
	want := []finding.Finding{
		{Severity: finding.Error, Cluster: "d", Object: "agent", Message: "no replica leads", Affects: 2},
		{Severity: finding.Error, Cluster: "a, c", Object: "Peer b", Message: "Connected is False (Lost): no heartbeat of b", Reason: "Lost", Affects: 2},
		{Severity: finding.Error, Cluster: "a", Object: "ServiceExport shop/web", Message: "Available is False (NamespaceMissing): in b", Reason: "NamespaceMissing"},
	}
	if diff := cmp.Diff(want, causes([]*part{in("a", lost, missing), in("c", lost), stopped})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
