// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook"
	"github.com/comity-mcs/comity/webhook/facts"
)

// seeing warns of everything that it sees, but for what an API server or a controller
// chooses: two answers are the same only if the inputs are.
const seeing = `package comity.policies.seeing

warn contains {"msg": json.marshal([name, value])} if some name, value in seen

seen := {
	"labels": object.get(input.object.metadata, "labels", {}),
	"annotations": object.get(input.object.metadata, "annotations", {}),
	"old": object.get(input, ["oldObject", "metadata", "annotations"], {}),
	"spec": object.get(input.object, "spec", {}),
	"service": object.get(input, ["service", "spec"], {}),
	"namespace": input.namespace.metadata.labels,
	"user": object.get(input, "userInfo", {}),
	"rest": [
		input.apiVersion, input.operation, input.subject, input.published, input.ports, input.cluster,
		input.scope, input.namespaceScope, input.effectiveScope, input.destinations, input.peers,
	],
}
`

// inShop is for the namespace shop alone, by the label that every Namespace has.
const inShop = `package comity.policies.in_shop

deny contains {"msg": "nothing leaves the shop"} if input.object.metadata.labels.owner != "x"
`

// agreeing are the policies of the test: each of this repository alone, all that are
// installed together, and two that show what else a policy may read.
func agreeing(t *testing.T) map[string][]*v1alpha1.ExportPolicy {
	t.Helper()
	shipped, err := source.Read("../../../config/policies")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]*v1alpha1.ExportPolicy{}
	for _, policy := range shipped {
		out[policy.Name()] = []*v1alpha1.ExportPolicy{policy.Object}
		if !strings.Contains(policy.Path, "library") {
			out["installed"] = append(out["installed"], policy.Object)
		}
	}
	if len(out) < 10 {
		t.Fatalf("%d policies were found", len(out))
	}
	of := func(name, rego string, match *v1alpha1.Match) []*v1alpha1.ExportPolicy {
		return []*v1alpha1.ExportPolicy{{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ExportPolicySpec{Rego: rego, Match: match}}}
	}
	out["seeing"] = of("seeing", seeing, nil)
	out["in-shop"] = of("in-shop", inShop, &v1alpha1.Match{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "shop"}},
	})
	return out
}

// Whoever tries manifests with "kubectl comity policy eval" learns what the webhook
// answers when they are applied, and what an audit finds of them once they are stored.
func TestEvalAnswersAsWebhookAndAuditDo(t *testing.T) {
	for name, policies := range agreeing(t) {
		t.Run(name, func(t *testing.T) {
			here, agent := newLoaded(t, policies), newLoaded(t, policies)
			outcomes := map[string]int{}
			rapid.Check(t, func(t *rapid.T) {
				w := drawWorld(t)
				got := w.evaluated(t, here)
				want := w.audited(agent)
				if w.operation != decision.Audit {
					want = w.answered(t, agent)
				}
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("%s (-cluster +eval):\n%s", w.operation, diff)
				}
				outcomes[got.Outcome]++
			})
			importing := policies[0].Spec.Stage == v1alpha1.StageImport
			if outcomes["Allowed"] == 0 || outcomes["Denied"] == 0 && !importing || outcomes["NotEvaluated"] == 0 && !importing {
				t.Errorf("the worlds are too much alike: %v", outcomes)
			}
		})
	}
}

func newLoaded(t *testing.T, policies []*v1alpha1.ExportPolicy) *engine.Engine {
	t.Helper()
	e := engine.New(engine.Options{Timeout: time.Minute})
	var list []engine.Policy
	for _, policy := range policies {
		list = append(list, engine.FromObject(policy, time.Now()))
	}
	for _, result := range e.Load(list) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	return e
}

// said is an answer, whoever gives it.
type said struct {
	Outcome              string
	Problem              string
	Violations, Warnings []string
}

// world is what is written in manifests.
type world struct {
	operation decision.Operation
	export    *mcsv1beta1.ServiceExport
	before    *mcsv1beta1.ServiceExport // nil unless the operation is UPDATE
	namespace *corev1.Namespace         // nil: there is none
	service   *corev1.Service           // nil: there is none
	published bool
	members   []Member
}

var shopWeb = metav1.ObjectMeta{Namespace: "shop", Name: "web"}

func drawWorld(t *rapid.T) world {
	w := world{
		operation: rapid.SampledFrom([]decision.Operation{decision.Create, decision.Update, decision.Audit}).Draw(t, "operation"),
		export:    drawExport(t, "export"), service: drawService(t), published: rapid.Bool().Draw(t, "published"),
	}
	if w.operation == decision.Update {
		w.before = w.export
		if rapid.Bool().Draw(t, "it changes") {
			w.before = drawExport(t, "export before")
		}
	}
	if w.operation == decision.Audit {
		delete(w.export.Labels, model.LabelExportTo) // it is never stored
	}
	if w.operation == decision.Create {
		w.published = false
	}
	if rapid.IntRange(0, 7).Draw(t, "there is a Namespace") > 0 {
		w.namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "shop",
			Labels: drawn(t, "label of the Namespace", map[string][]string{
				"comity.dev/identity": {"", "1", "2"}, "example.com/exports": {"", "allowed"}, "example.com/data-residency": {"", "eu"},
			}),
			Annotations: drawn(t, "annotation of the Namespace", map[string][]string{
				model.AnnotationExportTo: {"", "", "b", "b,c", "b,,c"}, "example.com/owner": {"", "x"},
			}),
		}}
	}
	for _, id := range []string{"b", "c", "d"} {
		member := Member{ID: id, Labels: drawn(t, "label of "+id, map[string][]string{
			"topology.kubernetes.io/region": {"", "eu-west-1", "us-east-1"}, "tier": {"", "test"},
		})}
		switch rapid.SampledFrom([]string{"present", "present", "absent", "unknown"}).Draw(t, "namespace in "+id) {
		case "present":
			member.Namespaces = map[string]map[string]string{"shop": drawn(t, "identity in "+id, map[string][]string{"comity.dev/identity": {"", "1", "2"}})}
		case "absent":
			member.Namespaces = map[string]map[string]string{"elsewhere": {}}
		}
		w.members = append(w.members, member)
	}
	return w
}

// drawn are some of the keys with one of their values; empty: without the key.
func drawn(t *rapid.T, what string, values map[string][]string) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if value := rapid.SampledFrom(values[key]).Draw(t, what+" "+key); value != "" {
			out[key] = value
		}
	}
	return out
}

func drawExport(t *rapid.T, what string) *mcsv1beta1.ServiceExport {
	export := &mcsv1beta1.ServiceExport{ObjectMeta: *shopWeb.DeepCopy()}
	export.Labels = drawn(t, "label of the "+what, map[string][]string{
		"owner": {"", "x", "y"}, model.LabelExportTo: {"", "", "", "b", "b,c"}, "example.com/owner": {"", "x"},
	})
	export.Annotations = drawn(t, "annotation of the "+what, map[string][]string{
		model.AnnotationExportTo:         {"", "", "", "b", "b,c", "a", "z", "b,,c"},
		model.AnnotationExportToSelector: {"", "", "", "", "tier=test", "cluster.clusterset.k8s.io in (b, d)", "tier in"},
		model.AnnotationExportPorts:      {"", "", "", "http", "http,sql", "nope", ","},
	})
	export.Spec.ExportedLabels = drawn(t, "exported label of the "+what, map[string][]string{"app.kubernetes.io/name": {"", "web"}, "team": {"", "", "shop"}})
	return export
}

func drawService(t *rapid.T) *corev1.Service {
	kind := rapid.SampledFrom([]string{"none", "", "", "ClusterIP", "Headless", "NodePort", "LoadBalancer", "ExternalName"}).Draw(t, "Service")
	if kind == "none" {
		return nil
	}
	service := &corev1.Service{ObjectMeta: *shopWeb.DeepCopy(), Spec: corev1.ServiceSpec{Type: corev1.ServiceType(kind)}}
	if kind == "Headless" {
		service.Spec.Type, service.Spec.ClusterIP = "", corev1.ClusterIPNone
	}
	for _, port := range []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "sql", Port: 5432}, {Name: "ssh", Port: 22, Protocol: corev1.ProtocolUDP}} {
		if rapid.Bool().Draw(t, "port "+port.Name) {
			service.Spec.Ports = append(service.Spec.Ports, port)
		}
	}
	return service
}

// evaluated is what eval says of the manifests.
func (w world) evaluated(t *rapid.T, e *engine.Engine) said {
	given := &trial{engine: e.Front, operation: w.operation, manifests: w.manifests(t, w.export)}
	if w.before != nil {
		given.before = w.manifests(t, w.before)
	}
	verdicts := given.evaluate(context.Background())
	if len(verdicts) != 1 {
		t.Fatalf("%d verdicts", len(verdicts))
	}
	out := said{Outcome: verdicts[0].Outcome, Problem: verdicts[0].Problem}
	for _, one := range verdicts[0].Violations {
		out.Violations = append(out.Violations, one.String())
	}
	for _, one := range verdicts[0].Warnings {
		out.Warnings = append(out.Warnings, one.String())
	}
	return out
}

// manifests are the files of the world, read as those of a user.
func (w world) manifests(t *rapid.T, export *mcsv1beta1.ServiceExport) *manifests {
	clusterset := &Clusterset{Cluster: "a", User: &decision.UserInfo{Username: "eve", Groups: []string{"devs"}}, Members: w.members}
	if w.published {
		clusterset.Published = []string{"shop/web"}
	}
	var documents []source.Document
	add := func(apiVersion, kind string, object any) {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, source.Document{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, Place: "x.json", JSON: text})
	}
	add(mcsv1beta1.GroupVersion.String(), "ServiceExport", export)
	if w.namespace != nil {
		add("v1", "Namespace", w.namespace)
	}
	if w.service != nil {
		add("v1", "Service", w.service)
	}
	clusterset.APIVersion, clusterset.Kind = "cli.comity.dev/v1alpha1", kindClusterset
	add(clusterset.APIVersion, clusterset.Kind, clusterset)
	m, err := newManifests(nil, documents)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// reviewer is that of an agent in a cluster in which the manifests were applied.
func (w world) reviewer(e *engine.Engine) facts.Reviewer {
	return facts.Reviewer{Evaluator: e, Reader: facts.Reader{
		Client: w.cluster(), Cluster: "a", Peers: w, PeerCache: facts.NewPeerCache(),
		Published: func(context.Context, *mcsv1beta1.ServiceExport) (decision.Publication, error) {
			return decision.Publication{Published: w.published}, nil
		},
	}}
}

// cluster has the objects as an API server stores them.
func (w world) cluster() client.Client {
	var objects []client.Object
	if w.namespace != nil {
		namespace := w.namespace.DeepCopy()
		if namespace.Labels == nil {
			namespace.Labels = map[string]string{}
		}
		namespace.Labels["kubernetes.io/metadata.name"] = namespace.Name
		objects = append(objects, namespace)
	}
	if w.service != nil {
		service := w.service.DeepCopy()
		service.Spec.SessionAffinity = "None"
		if service.Spec.Type == "" {
			service.Spec.Type = "ClusterIP"
		}
		for i, port := range service.Spec.Ports {
			service.Spec.Ports[i].TargetPort = intstr.FromInt32(port.Port)
			if port.Protocol == "" {
				service.Spec.Ports[i].Protocol = "TCP"
			}
		}
		switch service.Spec.Type {
		case "LoadBalancer":
			service.Spec.AllocateLoadBalancerNodePorts = ptr.To(true)
			fallthrough
		case "NodePort":
			service.Spec.ExternalTrafficPolicy = "Cluster"
			fallthrough
		case "ClusterIP":
			service.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
		}
		objects = append(objects, service)
	}
	return fake.NewClientBuilder().WithObjects(objects...).Build()
}

// Members implements facts.Peers.
func (w world) Members() (out []model.Member) {
	for _, member := range w.members {
		labels := maps.Clone(member.Labels) // of a Secret, which has the id of the member
		labels["cluster.clusterset.k8s.io"] = member.ID
		out = append(out, model.Member{ID: model.ClusterID(member.ID), Synced: member.Namespaces != nil, Labels: labels})
	}
	return out
}

// Namespace implements facts.Peers.
func (w world) Namespace(name string) map[model.ClusterID]decision.PeerNamespace {
	out := map[model.ClusterID]decision.PeerNamespace{}
	for _, member := range w.members {
		labels, has := member.Namespaces[name]
		one := decision.PeerNamespace{Labels: labels, Presence: decision.Absent}
		switch {
		case has:
			one.Presence = decision.Present
		case member.Namespaces == nil:
			one.Presence = decision.Unknown
		}
		out[model.ClusterID(member.ID)] = one
	}
	return out
}

// audited is the verdict on the export as it is stored.
func (w world) audited(e *engine.Engine) said {
	verdict := w.reviewer(e).Admit(context.Background(), w.export)
	out := said{Outcome: verdict.Outcome.String(), Problem: verdict.Problem}
	for _, v := range verdict.Violations {
		out.Violations = append(out.Violations, v.String())
	}
	for _, v := range verdict.Warnings {
		out.Warnings = append(out.Warnings, v.String())
	}
	return out
}

// answered is the answer to the request, of the mutating and then the validating webhook.
func (w world) answered(t *rapid.T, e *engine.Engine) said {
	handlers := webhook.Handlers(webhook.Options{Reviewer: w.reviewer(e), Live: w.cluster(), Registerer: prometheus.NewRegistry()})
	request := &admissionv1.AdmissionRequest{
		UID: "u", Operation: admissionv1.Operation(w.operation), Namespace: "shop", Name: "web",
		UserInfo: authenticationv1.UserInfo{Username: "eve", Groups: []string{"devs"}},
	}
	if w.before != nil { // it was created by way of the webhook
		created := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create, Namespace: "shop", Name: "web", Object: raw(t, w.before)}
		stored, refusal := mutated(t, handlers, created)
		if refusal != nil {
			return *refusal
		}
		request.OldObject = stored
	}
	request.Object = raw(t, w.export)
	changed, refusal := mutated(t, handlers, request)
	if refusal != nil {
		return *refusal
	}
	request.Object = changed
	return answerOf(send(t, handlers[webhook.PathValidateServiceExport], webhook.PathValidateServiceExport, request))
}

func raw(t *rapid.T, object any) runtime.RawExtension {
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: text}
}

// exports knows what the mutating webhook changes.
var exports = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(mcsv1beta1.Install(scheme))
	return scheme
}()

// mutated is the object of a request after the mutating webhook, or what that refuses.
func mutated(t *rapid.T, handlers map[string]http.Handler, request *admissionv1.AdmissionRequest) (runtime.RawExtension, *said) {
	answer := send(t, handlers[webhook.PathMutateServiceExport], webhook.PathMutateServiceExport, request)
	if !answer.Allowed {
		refusal := answerOf(answer)
		return runtime.RawExtension{}, &refusal
	}
	if len(answer.Patch) == 0 {
		return request.Object, nil
	}
	export := &mcsv1beta1.ServiceExport{}
	if err := json.Unmarshal(request.Object.Raw, export); err != nil {
		t.Fatal(err)
	}
	server := fake.NewClientBuilder().WithScheme(exports).WithObjects(export).Build()
	if err := server.Patch(t.Context(), export, client.RawPatch(types.JSONPatchType, answer.Patch)); err != nil {
		t.Fatal(err)
	}
	export.ResourceVersion = "" // it is not stored yet
	return raw(t, export), nil
}

// answerOf reads the answer as a user does.
func answerOf(answer *admissionv1.AdmissionResponse) said {
	out := said{Outcome: "Allowed", Warnings: answer.Warnings}
	switch {
	case answer.Allowed:
	case answer.Result.Reason == metav1.StatusReasonForbidden:
		out.Outcome, out.Violations = "Denied", strings.Split(answer.Result.Message, "\n")[1:]
	case answer.Result.Reason == metav1.StatusReasonBadRequest:
		out.Outcome, out.Problem = "Denied", answer.Result.Message
	default:
		out.Outcome = "NotEvaluated"
		_, problem, _ := strings.Cut(answer.Result.Message, " could not be evaluated: ")
		out.Problem, _, _ = strings.Cut(problem, ". Remedy: ")
	}
	return out
}

func send(t *rapid.T, handler http.Handler, path string, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	sent := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	sent.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, sent)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil {
		t.Fatal(err)
	}
	return review.Response
}
