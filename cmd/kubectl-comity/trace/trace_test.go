// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var (
	noon = metav1.NewTime(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	key  = types.NamespacedName{Namespace: "shop", Name: "web"}
)

func is(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: noon}
}

// managed is what Comity applied.
func managed(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop", Name: name, CreationTimestamp: noon, Labels: map[string]string{model.LabelServiceName: "web"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply}},
	}
}

func slice(name, service, source string, ready bool, addresses ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Ports:      []discoveryv1.EndpointPort{{Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if source != "" {
		s.Labels[model.LabelSourceCluster] = source
	}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	return s
}

func peerOf(id string, conditions ...metav1.Condition) exchangev1alpha1.Peer {
	all := map[string]metav1.Condition{}
	for _, c := range conditions {
		all[c.Type] = c
	}
	p := exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: exchangev1alpha1.PeerSpec{AcceptedCIDRs: []string{"10.2.0.0/16"}}}
	for _, kind := range []string{"Accepted", "Connected", "RecordsValid", "WithinLimits"} {
		c, set := all[kind]
		if !set {
			c = is(kind, metav1.ConditionTrue, "Test", "")
		}
		p.Status.Conditions = append(p.Status.Conditions, c)
	}
	return p
}

func newCluster(id model.ClusterID) *cluster {
	return &cluster{
		Site: &agent.Site{Context: string(id), Target: &command.Target{Context: string(id)}, Agent: agent.Agent{
			AgentInfo: model.AgentInfo{ID: id, Version: "v1.0.0", Mode: model.ExchangeMesh}, Namespace: "comity-system", Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "comity-0"}},
		}},
		key: key, namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, unread: map[string]error{},
	}
}

func setList(c *cluster, entries ...model.Entry) {
	text := model.List{Formed: noon.Time, Entries: entries}.String()
	c.derived[0].Annotations = map[string]string{model.AnnotationList: text}
	c.imported.Annotations = map[string]string{model.AnnotationList: text, model.AnnotationDerivedName: c.derived[0].Name}
}

func entry(id model.ClusterID, uid types.UID) model.Entry {
	return model.Entry{SourceExport: model.SourceExport{Cluster: id, UID: uid, CreatedAt: noon.Time}}
}

// healthy is an export of a that b imports.
func healthy() (a, b *cluster) {
	a, b = newCluster("a"), newCluster("b")
	a.service = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: noon},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
	a.slices.Items = []discoveryv1.EndpointSlice{slice("web-1", "web", "", true, "10.1.0.5", "10.1.0.6")}
	a.export = &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", CreationTimestamp: noon}}
	a.export.Status.Conditions = []metav1.Condition{
		is("Valid", "True", "Valid", "it exists"), is("Ready", "True", "Exported", "published"), is("Conflict", "False", "NoConflicts", "all agree"),
		is("Admitted", "True", "Admitted", "every policy lets it be published"), is("Available", "True", "Imported", "imported by the one cluster in scope: b"),
	}
	a.records.Items = []exchangev1alpha1.ExportRecord{{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: "web.shop", CreationTimestamp: noon}, Spec: exchangev1alpha1.ExportRecordSpec{ExportUID: "u"}}}
	a.peers.Items, b.peers.Items = []exchangev1alpha1.Peer{peerOf("b")}, []exchangev1alpha1.Peer{peerOf("a")}
	b.reports.Items = []exchangev1alpha1.ImportRecord{{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b-to-a", Name: "web.shop"}, Spec: exchangev1alpha1.ImportRecordSpec{ExportUID: "u", Imported: true, Reason: "Imported", Since: noon}}}
	b.imported = &mcsv1beta1.ServiceImport{ObjectMeta: managed("web"), Spec: mcsv1beta1.ServiceImportSpec{IPs: []string{"10.102.0.9"}}}
	b.imported.Status = mcsv1beta1.ServiceImportStatus{Clusters: []mcsv1beta1.ClusterStatus{{Cluster: "a"}}, Conditions: []metav1.Condition{is("Ready", "True", "Ready", "it can be used")}}
	derived := model.DerivedName("web")
	b.derived = []*corev1.Service{{ObjectMeta: managed(derived), Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.102.0.9"}}}}
	b.slices.Items = []discoveryv1.EndpointSlice{slice(derived+"-a", derived, "a", true, "10.1.0.5", "10.1.0.6")}
	setList(b, entry("a", "u"))
	return a, b
}

// traced is the report without a connection.
func traced(from, to string, all ...*cluster) Report {
	r := clusters(all).trace(from, to)
	r.connect(context.Background(), false)
	r.conclude()
	return r
}

func TestNoStepOfAHealthyWayIsBroken(t *testing.T) {
	a, b := healthy()
	r := traced("", "", a, b)
	if r.Broken || r.Cause != nil || len(r.Exports) != 1 || len(r.Exports[0].Ways) != 1 {
		t.Fatalf("got %+v", r)
	}
	var checks []string
	for _, s := range append(r.Exports[0].Steps, r.Exports[0].Ways[0].Steps...) {
		checks = append(checks, s.Check)
		if s.Severity != finding.OK && !strings.Contains(s.Message, "--no-connect") {
			t.Errorf("step %+v", s)
		}
	}
	const want = "Agent, ServiceExport, Policies, Conflict, Published, Endpoints, " +
		"ExportRecord, Agent, Peer a, Source, ServiceImport, EndpointSlices, CoreDNS, DNS answer, Connection"
	if got := strings.Join(checks, ", "); got != want {
		t.Errorf("got %s", got)
	}
}

func set(c *metav1.Condition, status metav1.ConditionStatus, reason, message string) {
	c.Status, c.Reason, c.Message = status, reason, message
}

func TestTheFirstCause(t *testing.T) {
	report := func(b *cluster, imported bool, reason, message string) {
		b.reports.Items[0].Spec.Imported, b.reports.Items[0].Spec.Reason, b.reports.Items[0].Spec.Message = imported, reason, message
	}
	derived := model.DerivedName("web")
	for _, test := range []struct {
		name                   string
		plant                  func(a, b *cluster)
		cluster, check, reason string
		fix, docs, message     string
	}{
		{"no ready endpoints", func(a, b *cluster) {
			a.slices.Items, b.slices.Items = []discoveryv1.EndpointSlice{slice("web-1", "web", "", false, "10.1.0.5")}, nil
		}, "a", "Endpoints", "NoReadyEndpoints", "kubectl --context a -n shop get pods -l 'app=web'", "troubleshooting.md#no-endpoints", "0 of 1 are ready"},
		{"no Service", func(a, _ *cluster) {
			a.service = nil
			set(&a.export.Status.Conditions[0], "False", "NoService", "there is no Service shop/web")
		}, "a", "ServiceExport", "NoService", "creates the Service", "conditions.md#serviceexport-valid-noservice", ""},
		{"no ServiceExport", func(a, b *cluster) {
			a.export, a.records.Items, b.reports.Items, b.imported, b.derived, b.peers.Items = nil, nil, nil, nil, nil, nil
		}, "a", "ServiceExport", "NoExport", "| kubectl --context a create -f -", "concepts.md", ""},
		{"a policy that denies", func(a, _ *cluster) {
			set(&a.export.Status.Conditions[3], "False", "PolicyDenied", "policy forbids this export: [owner] no owner")
			set(&a.export.Status.Conditions[1], "False", "Failed", "policy does not let it be published")
			a.records.Items[0].Spec.Withdrawn = true
		}, "a", "Policies", "PolicyDenied", "kubectl --context a get exportpolicies -o yaml", "conditions.md#serviceexport-admitted-policydenied", "[owner] no owner"},
		{"a scope that leaves b out", func(a, b *cluster) {
			a.export.Annotations = map[string]string{model.AnnotationExportTo: "c"}
			a.records.Items[0].Spec.Withdrawn, a.records.Items[0].Spec.WithdrawnAt = true, &noon
			b.reports.Items = nil
		}, "a", "ExportRecord", "OutOfScope", "kubectl --context a -n shop annotate serviceexport web --overwrite comity.dev/export-to=c,b", "troubleshooting.md#scope", "its scope is c"},
		{"a Namespace whose limit leaves b out", func(a, _ *cluster) {
			a.namespace.Annotations = map[string]string{model.AnnotationExportTo: "c"}
			a.records.Items = nil
		}, "a", "ExportRecord", "OutOfScope", "the owner of the export, of the Namespace", "troubleshooting.md#scope", ""},
		{"a selector that leaves b out", func(a, _ *cluster) {
			a.export.Annotations = map[string]string{model.AnnotationExportToSelector: "region=eu"}
			c := peerOf("c")
			c.Labels = map[string]string{"region": "eu"}
			a.peers.Items, a.records.Items = append(a.peers.Items, c), nil
		}, "a", "ExportRecord", "OutOfScope", "labels of Peer b corrects the scope", "troubleshooting.md#scope", ""},
		{"a policy that leaves b out", func(a, _ *cluster) {
			set(&a.export.Status.Conditions[3], "True", "ClustersExcluded", "this export is not published to cluster b")
			a.records.Items = nil
		}, "a", "ExportRecord", "ClustersExcluded", "get exportpolicies", "conditions.md#serviceexport-admitted-clustersexcluded", "not published to cluster b"},
		{"no Peer of b in a, and no record", func(a, _ *cluster) { a.peers.Items, a.records.Items = nil, nil }, "a", "ExportRecord", "UnknownCluster", "kubectl comity join a b", "", ""},
		{"a lost exchange namespace", func(a, _ *cluster) { a.records.Items = nil }, "a", "ExportRecord", "NotPublished", "kubectl comity join a b", "", ""},
		{"a stopped agent of the importer", func(_, b *cluster) {
			b.Err = b.Target.Errorf("%w: its holder does not run", agent.ErrNotRunning)
			b.Agent.Pod, b.Agent.Renewed = nil, noon.Time
			b.Agent.Deployments = []appsv1.Deployment{{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-system", Name: "comity"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0)}}}
		}, "b", "Agent", "NotRunning", "kubectl --context b -n comity-system scale deployment comity --replicas=2", "", "no replica of the agent leads"},
		{"a stopped agent of the exporter", func(a, b *cluster) {
			a.Err, a.Agent.Pod = a.Target.Errorf("%w: x", agent.ErrNotRunning), nil
			b.peers.Items = []exchangev1alpha1.Peer{peerOf("a", is("Connected", "False", "Lost", "no heartbeat"))}
		}, "a", "Agent", "NotRunning", "kubectl --context a -n comity-system describe pods", "", ""},
		{"a revoked token", func(_, b *cluster) {
			b.peers.Items = []exchangev1alpha1.Peer{peerOf("a", is("Connected", "False", "Unauthorized", "the token is not accepted"))}
		}, "b", "Peer a", "Unauthorized", "kubectl comity join a b", "peers.md#peer-connected-unauthorized", "Connected is False: the token is not accepted"},
		{"no Peer", func(_, b *cluster) { b.peers.Items = nil }, "b", "Peer a", "NoPeer", "kubectl comity join a b", "", ""},
		{"a missing namespace", func(_, b *cluster) {
			report(b, false, "NamespaceMissing", "create it there")
			b.namespace, b.imported, b.derived, b.slices.Items = nil, nil, nil, nil
		}, "b", "Source", "NamespaceMissing", "kubectl --context b create namespace shop", "conditions.md#serviceexport-available-namespacemissing", ""},
		{"a foreign Service with the name", func(_, b *cluster) {
			report(b, false, "NameTaken", "other objects have the names")
			b.derived = []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Name: derived}}, {ObjectMeta: metav1.ObjectMeta{Name: model.AlternateDerivedName("web")}}}
			b.imported, b.slices.Items = nil, nil
		}, "b", "Source", "NameTaken", "kubectl --context b -n shop delete service " + derived, "conditions.md#serviceexport-available-nametaken", ""},
		{"a foreign ServiceImport", func(_, b *cluster) {
			report(b, false, "ForeignImport", "it has a ServiceImport")
			b.imported.ManagedFields, b.imported.Annotations, b.derived, b.slices.Items = nil, nil, nil, nil
		}, "b", "Source", "ForeignImport", "kubectl --context b -n shop delete serviceimport web", "", ""},
		{"a namespace that b does not accept", func(_, b *cluster) { report(b, false, "NamespaceNotAccepted", "x") }, "b", "Source", "NamespaceNotAccepted",
			`kubectl --context b patch peer a --type=json -p '[{"op":"add","path":"/spec/acceptedNamespaces/-","value":"shop"}]'`, "", ""},
		{"a Namespace that imports from others only", func(_, b *cluster) {
			b.namespace.Annotations = map[string]string{model.AnnotationImportFrom: "c"}
			report(b, false, "PolicyDenied", "x")
		}, "b", "Source", "PolicyDenied", "kubectl --context b annotate namespace shop --overwrite comity.dev/import-from=c,a", "", ""},
		{"a missing export", func(_, b *cluster) {
			missing := entry("a", "u")
			missing.Absent, missing.Since = model.SourceMissing, noon.Time
			setList(b, missing)
			b.reports.Items = nil
		}, "b", "Source", "Missing", "kubectl comity join a b", "imports.md", "missing without a withdrawal"},
		{"a held takeover", func(_, b *cluster) {
			younger := entry("c", "v")
			younger.CreatedAt = noon.Add(time.Hour)
			setList(b, younger, entry("a", "u"))
			report(b, true, "TakeoverHeld", "see the condition")
			b.imported.Status.Conditions = append(b.imported.Status.Conditions, is("TakeoverHeld", "True", "TakeoverHeld", "a waits"))
		}, "b", "ServiceImport", "TakeoverHeld", "kubectl comity confirm takeover shop/web --from a --context b", "conditions.md#serviceimport-takeoverheld-takeoverheld", ""},
		{"endpoints that are withdrawn", func(_, b *cluster) {
			b.slices.Items = []discoveryv1.EndpointSlice{slice("x", derived, "a", false, "10.1.0.5")}
			b.imported.Status.Conditions = append(b.imported.Status.Conditions, is("Available", "False", "Withdrawn", "they do not answer"))
		}, "b", "EndpointSlices", "Withdrawn", "", "conditions.md#serviceimport-available-withdrawn", "they do not answer"},
		{"CoreDNS without the zone", func(_, b *cluster) {
			b.dns = []finding.Finding{{Severity: finding.Error, Reason: "ZoneMissing", Fix: "kubectl comity coredns enable b"}}
		}, "b", "CoreDNS", "ZoneMissing", "kubectl comity coredns enable b", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := healthy()
			test.plant(a, b)
			r := traced("a", "b", a, b)
			if !r.Broken || r.Cause == nil {
				t.Fatalf("nothing is broken: %+v", r)
			}
			got := *r.Cause
			if got.Cluster != test.cluster || got.Check != test.check || got.Reason != test.reason || !strings.Contains(got.Fix, test.fix) ||
				!strings.Contains(got.Docs, test.docs) || !strings.Contains(got.Message, test.message) {
				t.Errorf("got %+v", got)
			}
			if got.Docs == "" && test.check != "CoreDNS" || got.Fix == "" || got.Follows {
				t.Errorf("the cause has no docs or fix, or follows: %+v", got)
			}
			last := r.Exports[0].Ways[0].Steps
			if !last[len(last)-1].Follows {
				t.Errorf("the connection does not follow: %+v", last)
			}
		})
	}
}

func TestWithOneClusterOthersAreNotRead(t *testing.T) {
	a, b := healthy()
	r := traced("", "", a)
	if len(r.Exports) != 1 || len(r.Exports[0].Ways) != 1 || r.Broken {
		t.Fatalf("got %+v", r)
	}
	steps := r.Exports[0].Ways[0].Steps
	if last := steps[len(steps)-1]; last.Severity != finding.NotRead || !strings.Contains(last.Message, "cluster a says: Available True (Imported)") {
		t.Errorf("the exporter alone: %+v", last)
	}
	r = traced("", "", b)
	if len(r.Exports) != 1 || r.Exports[0].Cluster != "a" || r.Exports[0].Steps[0].Severity != finding.NotRead || r.Broken {
		t.Fatalf("the importer alone: %+v", r)
	}
	found := map[string]finding.Severity{}
	for _, s := range r.Exports[0].Ways[0].Steps {
		found[s.Check] = s.Severity
	}
	if found["ExportRecord"] != finding.NotRead || found["Peer a"] != finding.OK || found["Source"] != finding.OK || found["EndpointSlices"] != finding.OK {
		t.Errorf("the importer alone: %+v", found)
	}
	a, b = healthy()
	b.unread["Service"], b.derived = fmt.Errorf("forbidden"), nil
	r = clusters{a, b}.trace("a", "b")
	r.connect(context.Background(), true)
	steps = r.Exports[0].Ways[0].Steps
	if last := steps[len(steps)-1]; last.Check != "Connection" || last.Message != "not tried" {
		t.Errorf("an import that may not be read: %+v", last)
	}
	a, _ = healthy()
	a.unread["ServiceExport"], a.export = fmt.Errorf("forbidden"), nil
	if r := traced("a", "b", a, b); r.Broken || r.Exports[0].Steps[1].Severity != finding.NotRead || r.Exports[0].Steps[1].Message != "forbidden" {
		t.Errorf("what may not be read: %+v", r.Exports[0].Steps)
	}
}

func TestAHubExportsNothing(t *testing.T) {
	a, hub := newCluster("a"), newCluster("hub")
	a.Agent.Mode, hub.Err = model.ExchangeHub, agent.ErrNotInstalled
	if exporters := (clusters{a, hub}).exporters(); !slices.Equal(exporters, []model.ClusterID{"a"}) {
		t.Errorf("where nobody exports the Service, got %v", exporters)
	}
}

func policy(name string, cidrs ...string) []networkingv1.NetworkPolicy {
	rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}}
	for _, c := range cidrs {
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: c}})
	}
	return []networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{rule}}}}
}

func TestAConnectionThatFails(t *testing.T) {
	a, b := healthy()
	h := hop{clusters{a, b}, a, b}
	if got := strings.Join(h.targets(), " "); got != "10.1.0.5:8080 10.1.0.6:8080" {
		t.Fatalf("targets %s", got)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{"app": "web"}}}
	const timeout, admit = "timed out: no answer; a firewall may drop the packets, or no route leads back",
		"kubectl comity networkpolicy shop/web a | kubectl --context a apply -f -"
	for _, test := range []struct {
		name, err            string
		networks             []networkingv1.NetworkPolicy
		reason, fix, message string
	}{
		{"it connects", "", policy("own"), "", "", "2 of 2 endpoints"},
		{"a packet filter", timeout, nil, "NotRouted", "who owns the network", "1 of 2 endpoints accept a TCP connection; 10.1.0.5:8080: timed out"},
		{"a NetworkPolicy admits no remote address", timeout, policy("own"), "NotAdmitted", admit, "admit no address of cluster b (10.2.0.0/16"},
		{"one admits others only", timeout, policy("own", "10.9.0.0/16"), "NotAdmitted", admit, "admit no address of cluster b"},
		{"one admits it", timeout, policy("own", "10.2.0.0/17"), "NotRouted", "who owns the network", "no NetworkPolicy of cluster a keeps cluster b away"},
		{"nothing listens", "dial tcp 10.1.0.5:8080: connect: connection refused", nil, "PortClosed", "targetPort", "refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a.Target.Client = fake.NewClientBuilder().WithScheme(command.NewScheme()).WithObjects(a.namespace, a.service, pod).
				WithLists(&networkingv1.NetworkPolicyList{Items: test.networks}).Build()
			got := h.connected(context.Background(), []probe.Result{{Target: "10.1.0.5:8080", Error: test.err}, {Target: "10.1.0.6:8080"}})
			if got.Reason != test.reason || !strings.Contains(got.Fix, test.fix) || !strings.Contains(got.Message, test.message) || (got.Severity == finding.OK) != (test.err == "") {
				t.Errorf("got %+v", got)
			}
			if isClosed := got.Object == "NetworkPolicy shop/own"; isClosed != (test.reason == "NotAdmitted") {
				t.Errorf("the object is %q", got.Object)
			}
		})
	}
}

func TestTheAnswerOfTheDNS(t *testing.T) {
	a, b := healthy()
	h := hop{clusters{a, b}, a, b}
	if h.name() != "web.shop.svc.clusterset.local." {
		t.Errorf("asks for %s", h.name())
	}
	for _, test := range []struct {
		name   string
		answer probe.Result
		ips    []string
		want   string
	}{
		{"the clusterset IP", probe.Result{Addresses: []string{"10.102.0.9"}}, []string{"10.102.0.9"}, ""},
		{"another address", probe.Result{Addresses: []string{"192.0.2.1"}}, []string{"10.102.0.9"}, "NotResolved"},
		{"no such host", probe.Result{Error: "cannot resolve web: no such host"}, []string{"10.102.0.9"}, "NotResolved"},
		{"endpoints of a headless import", probe.Result{Addresses: []string{"10.1.0.6"}}, nil, ""},
	} {
		b.imported.Spec.IPs = test.ips
		if got := h.answered(test.answer); got.Reason != test.want || (got.Severity == finding.OK) != (test.want == "") {
			t.Errorf("%s: got %+v", test.name, got)
		}
	}
}

func TestPrint(t *testing.T) {
	a, b := healthy()
	b.dns = []finding.Finding{{Severity: finding.Error, Reason: "ZoneMissing", Message: "no zone", Fix: "kubectl comity coredns enable b", Docs: "https://example.org/#dns"}}
	var out bytes.Buffer
	env := command.NewEnv(genericiooptions.IOStreams{Out: &out})
	traced("a", "b", a, b).print(env, noon.Add(5*time.Minute))
	want := `Service shop/web

from cluster a
  ok        Agent: Running: Comity v1.0.0, Pod comity-0 leads
  ok        ServiceExport: it exists (for 5m)
  ok        Policies: every policy lets it be published (for 5m)
  ok        Conflict: all agree (for 5m)
  ok        Published: published (for 5m)
  ok        Endpoints: 2 of 2 are ready
  to cluster b
    ok        ExportRecord: published in namespace comity-a (for 5m)
    ok        Agent: Running: Comity v1.0.0, Pod comity-0 leads
    ok        Peer a: Connected (for 5m)
    ok        Source: Published, 1 of 1 in the list of the import (for 5m)
    ok        ServiceImport: it can be used (for 5m)
    ok        EndpointSlices: 2 of 2 are ready
    BROKEN    CoreDNS: ZoneMissing: no zone
              fix:  kubectl comity coredns enable b
              docs: https://example.org/#dns
    follows   DNS answer: not tried (--no-connect)
    follows   Connection: not tried (--no-connect)

Error: b: CoreDNS (ZoneMissing): no zone
  fix:  kubectl comity coredns enable b
  docs: https://example.org/#dns
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTiersAreShownAndWhichServes(t *testing.T) {
	a, b := healthy()
	b.derived[0].Annotations[model.AnnotationTiers] = "self; *"
	b.imported.Status.Conditions = append(b.imported.Status.Conditions, is("Available", "True", "Connected", "tier 1 of 2 (self) serves, from b; all 2 clusters that export it are connected: a, b"))
	for message, isReady := range map[string]bool{"2 of 2 are ready; tier 1 of 2 (self) serves": true, "0 of 2 are ready; tier 1 of 2 (self) serves": false} {
		b.slices.Items = []discoveryv1.EndpointSlice{slice("x", b.derived[0].Name, "a", isReady, "10.1.0.5", "10.1.0.6")}
		var out bytes.Buffer
		r := traced("a", "b", a, b)
		r.print(command.NewEnv(genericiooptions.IOStreams{Out: &out}), noon.Time)
		if r.Broken || !strings.Contains(out.String(), message) {
			t.Errorf("broken: %t\n%s", r.Broken, out.String())
		}
	}
}
