// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/plan"
)

// server answers writes as told and notes what was sent.
type server struct {
	client.Client
	answers []error
	sent    []sent
	// owners are the field ownerships that the server answers with.
	owners []metav1.ManagedFieldsEntry
}

type sent struct {
	Verb  string
	Name  string
	Body  map[string]any
	Owner string
	Force bool
	// Preconditions of a delete.
	UID     types.UID
	Version string
}

func (s *server) answer() error {
	if len(s.answers) == 0 {
		return nil
	}
	err := s.answers[0]
	s.answers = s.answers[1:]
	return err
}

func (s *server) Patch(_ context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	var options client.PatchOptions
	options.ApplyOptions(opts)
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	note := sent{Verb: string(p.Type()), Name: o.GetName(), Owner: options.FieldManager, Force: options.Force != nil && *options.Force}
	if err := json.Unmarshal(data, &note.Body); err != nil {
		return err
	}
	s.sent = append(s.sent, note)
	o.SetUID("given-by-the-server")
	o.SetResourceVersion(fmt.Sprint("v", len(s.sent)))
	o.SetManagedFields(s.owners)
	return s.answer()
}

func (s *server) Update(_ context.Context, o client.Object, opts ...client.UpdateOption) error {
	var options client.UpdateOptions
	options.ApplyOptions(opts)
	note := sent{Verb: "update", Name: o.GetName(), Owner: options.FieldManager, UID: o.GetUID(), Version: o.GetResourceVersion()}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &note.Body); err != nil {
		return err
	}
	s.sent = append(s.sent, note)
	o.SetResourceVersion(fmt.Sprint("v", len(s.sent)))
	return s.answer()
}

func (s *server) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	note := sent{Verb: "delete", Name: o.GetName()}
	if p := options.Preconditions; p != nil && p.UID != nil && p.ResourceVersion != nil {
		note.UID, note.Version = *p.UID, *p.ResourceVersion
	}
	s.sent = append(s.sent, note)
	return s.answer()
}

func slice(name string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP},
	}
}

const (
	applyPatch = "application/apply-patch+yaml"
	mergePatch = "application/merge-patch+json"
)

func TestWhatAnApplyWouldLeaveIsTakenOffFirst(t *testing.T) {
	s := &server{}
	strip := map[string]any{"spec": map[string]any{"externalIPs": nil}}
	_, err := New(s, nil).Apply(context.Background(), []plan.Action{{Verb: plan.Update, Object: service("a"), UID: "u", ResourceVersion: "7", Strip: strip}})
	if err != nil {
		t.Fatal(err)
	}
	want := []sent{
		{Verb: mergePatch, Name: "a", Owner: "comity", Body: map[string]any{
			"metadata": map[string]any{"uid": "u", "resourceVersion": "7"}, "spec": map[string]any{"externalIPs": nil},
		}},
		{Verb: applyPatch, Name: "a", Owner: "comity", Force: true, Body: map[string]any{
			"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"type": "ClusterIP"},
			"metadata": map[string]any{"namespace": "shop", "name": "a", "uid": "u"},
		}},
	}
	if diff := cmp.Diff(want, s.sent); diff != "" {
		t.Errorf("(-want +sent):\n%s", diff)
	}
}

func TestASliceThatHasOnlyOtherEndpointsIsReplacedWhileItIsAsItWasRead(t *testing.T) {
	read, desired := slice("a"), slice("a")
	read.UID, read.ResourceVersion, read.Labels, read.Annotations = "u", "7", map[string]string{"users": "own"}, map[string]string{"b": "c"}
	read.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "comity", Operation: metav1.ManagedFieldsOperationApply}}
	desired.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.2.0.1"}}}
	body := func(metadata map[string]any) map[string]any {
		metadata["namespace"], metadata["name"], metadata["uid"] = "shop", "a", "u"
		return map[string]any{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "metadata": metadata,
			"endpoints": []any{map[string]any{"addresses": []any{"10.2.0.1"}, "conditions": map[string]any{}}},
		}
	}
	update := sent{Verb: "update", Name: "a", Owner: "comity", UID: "u", Version: "7", Body: body(map[string]any{
		"resourceVersion": "7", "labels": map[string]any{"users": "own"}, "annotations": map[string]any{"b": "c"},
	})}
	update.Body["ports"] = nil // an update may say so, an apply may not
	patch := sent{Verb: applyPatch, Name: "a", Owner: "comity", Force: true, Body: body(map[string]any{})}
	patch.Body["ports"] = []any{}
	resource := schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	for _, c := range []struct {
		name   string
		answer error
		want   []sent
		fails  bool
	}{
		{"it is", nil, []sent{update}, false},
		{"it was changed", apierrors.NewConflict(resource, "a", errors.New("modified")), []sent{update, patch}, false},
		{"it is gone", apierrors.NewNotFound(resource, "a"), []sent{update, patch}, false},
		{"it is refused", apierrors.NewBadRequest("no"), []sent{update}, true},
		{"it is forbidden", apierrors.NewForbidden(resource, "a", errors.New("no")), []sent{update}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{answers: []error{c.answer}}
			applied, err := New(s, nil).Apply(context.Background(), []plan.Action{{Verb: plan.Update, Object: desired, UID: "u", Read: read}})
			if (err != nil) != c.fails || (len(applied) == 1) == c.fails {
				t.Errorf("applied %v, %v", applied, err)
			}
			if diff := cmp.Diff(c.want, s.sent); diff != "" {
				t.Errorf("(-want +sent):\n%s", diff)
			}
			if read.ManagedFields == nil {
				t.Error("the slice that was read was changed")
			}
		})
	}
}

func TestAnAdoptionEndsWithTheFieldOwnershipOfOthers(t *testing.T) {
	owner := func(manager, subresource string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Subresource: subresource}
	}
	s := &server{owners: []metav1.ManagedFieldsEntry{owner("sveltos", ""), owner("comity", ""), owner("kube-controller-manager", "status")}}
	action := plan.Action{
		Verb: plan.Adopt, Object: service("a"), UID: "u", ResourceVersion: "7",
		Release: map[string]any{"metadata": map[string]any{"labels": map[string]any{"theirs": nil}}},
	}
	applied, err := New(s, nil).Apply(context.Background(), []plan.Action{action})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.sent) != 2 || s.sent[0].Verb != applyPatch || !s.sent[0].Force || applied[0].GetResourceVersion() != "v2" {
		t.Fatalf("sent %+v, applied %v", s.sent, applied)
	}
	if diff := cmp.Diff(map[string]any{"namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "7"}, s.sent[0].Body["metadata"]); diff != "" {
		t.Errorf("not the object that was read (-want +sent):\n%s", diff)
	}
	want := sent{Verb: mergePatch, Name: "a", Owner: "comity", Body: map[string]any{"metadata": map[string]any{
		"uid": "u", "resourceVersion": "v1", "labels": map[string]any{"theirs": nil},
		"managedFields": []any{
			map[string]any{"manager": "comity", "operation": "Apply"},
			map[string]any{"manager": "kube-controller-manager", "operation": "Apply", "subresource": "status"},
		},
	}}}
	if diff := cmp.Diff(want, s.sent[1]); diff != "" {
		t.Errorf("the release (-want +sent):\n%s", diff)
	}
}

func TestEveryWriteCarriesAPrecondition(t *testing.T) {
	s := &server{}
	applied, err := New(s, nil).Apply(context.Background(), []plan.Action{
		{Verb: plan.Create, Object: slice("new")},
		{Verb: plan.Update, Object: service("old"), UID: "u-1"},
		{Verb: plan.Update, Object: service("read"), UID: "u-3", ResourceVersion: "8"},
		{Verb: plan.Annotate, Object: service("listed"), UID: "u-4", ResourceVersion: "9", Strip: map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "b"}}}},
		{Verb: plan.Delete, Object: slice("gone"), UID: "u-2", ResourceVersion: "7"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []sent{
		{Verb: applyPatch, Name: "new", Owner: "comity", Body: map[string]any{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": []any{}, "ports": []any{},
			"metadata": map[string]any{"namespace": "shop", "name": "new", "resourceVersion": "1"},
		}},
		{Verb: applyPatch, Name: "old", Owner: "comity", Force: true, Body: map[string]any{
			"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"type": "ClusterIP"},
			"metadata": map[string]any{"namespace": "shop", "name": "old", "uid": "u-1"},
		}},
		{Verb: applyPatch, Name: "read", Owner: "comity", Force: true, Body: map[string]any{
			"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"type": "ClusterIP"},
			// The version alone would let the apply create what is not there any more.
			"metadata": map[string]any{"namespace": "shop", "name": "read", "uid": "u-3", "resourceVersion": "8"},
		}},
		{Verb: mergePatch, Name: "listed", Owner: "comity", Body: map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"a": "b"}, "uid": "u-4", "resourceVersion": "9"},
		}},
		{Verb: "delete", Name: "gone", UID: "u-2", Version: "7"},
	}
	if diff := cmp.Diff(want, s.sent); diff != "" {
		t.Errorf("(-want +sent):\n%s", diff)
	}
	if len(applied) != 4 || applied[1].GetUID() != "given-by-the-server" || applied[1].GetObjectKind().GroupVersionKind().Kind != "Service" {
		t.Errorf("applied %v", applied)
	}
}

func TestAWriteWithoutItsPreconditionIsNotMade(t *testing.T) {
	for _, action := range []plan.Action{
		{Verb: plan.Update, Object: service("a")},
		{Verb: plan.Adopt, Object: service("a"), ResourceVersion: "1"},
		{Verb: plan.Update, Object: service("a"), UID: "u", Strip: map[string]any{"spec": nil}},
		{Verb: plan.Annotate, Object: service("a"), ResourceVersion: "1", Strip: map[string]any{}},
		{Verb: plan.Annotate, Object: service("a"), UID: "u", Strip: map[string]any{}},
		{Verb: plan.Delete, Object: service("a"), UID: "u"},
		{Verb: plan.Delete, Object: service("a"), ResourceVersion: "1"},
		{Object: service("a")},
	} {
		s := &server{}
		if _, err := New(s, nil).Apply(context.Background(), []plan.Action{action}); err == nil || len(s.sent) > 0 {
			t.Errorf("%s: error %v, sent %v", action, err, s.sent)
		}
	}
}

var services = schema.GroupResource{Resource: "services"}

func terminating() error {
	err := apierrors.NewForbidden(services, "a", errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	return err
}

func TestTheClassOfAnErrorDecidesItsRetry(t *testing.T) {
	for _, c := range []struct {
		name   string
		verb   plan.Verb
		answer error
		class  Class
	}{
		{"a create met an object", plan.Create, apierrors.NewConflict(services, "a", errors.New("modified")), Conflict},
		{"an update met another object", plan.Update, apierrors.NewConflict(services, "a", errors.New("uid mismatch")), Conflict},
		{"a delete met a newer version", plan.Delete, apierrors.NewConflict(services, "a", errors.New("precondition")), Conflict},
		{"the namespace is not there", plan.Create, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), NamespaceMissing},
		{"the namespace is going", plan.Create, terminating(), NamespaceMissing},
		{"the kind is not there", plan.Create, apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", services, "a", "404 page not found", 0, true), Unavailable},
		{"the object was deleted before its update", plan.Update, apierrors.NewNotFound(services, "a"), Conflict},
		{"the kind of an update is not there", plan.Update, apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", services, "a", "404 page not found", 0, true), Unavailable},
		{"the object is not accepted", plan.Create, apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "a", nil), Refused},
		{"the object was made again before its update", plan.Update, apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "a",
			field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), "u", "field is immutable")}), Conflict},
		{"we may not", plan.Update, apierrors.NewForbidden(services, "a", errors.New("rbac")), Refused},
		{"the server is busy", plan.Update, apierrors.NewTooManyRequests("later", 1), Unavailable},
		{"the server fails", plan.Update, apierrors.NewInternalError(errors.New("etcd")), Unavailable},
		{"the network fails", plan.Update, errors.New("connection refused"), Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			a := New(&server{answers: []error{c.answer}}, registry)
			_, err := a.Apply(context.Background(), []plan.Action{{Verb: c.verb, Object: service("a"), UID: "u", ResourceVersion: "1"}})
			if got := ClassOf(err); got != c.class {
				t.Errorf("class %s, want %s", got, c.class)
			}
			if got := counted(t, registry); got != "Service/"+string(c.class)+"/"+string(c.verb) {
				t.Errorf("counted %s", got)
			}
		})
	}
}

// counted joins the labels of the only write that was counted.
func counted(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 || families[0].GetMetric()[0].GetCounter().GetValue() != 1 {
		return fmt.Sprint(families, err)
	}
	var labels []string
	for _, label := range families[0].GetMetric()[0].GetLabel() { // sorted by name: kind, result, verb
		labels = append(labels, label.GetValue())
	}
	return strings.Join(labels, "/")
}

func TestWhatComesAfterAFailureWaits(t *testing.T) {
	s := &server{answers: []error{nil, errors.New("network")}}
	applied, err := New(s, nil).Apply(context.Background(), []plan.Action{
		{Verb: plan.Create, Object: slice("1")}, {Verb: plan.Create, Object: slice("2")}, {Verb: plan.Create, Object: slice("3")},
	})
	var failed *Error
	if !errors.As(err, &failed) || failed.Action.Object.GetName() != "2" || len(applied) != 1 || len(s.sent) != 2 {
		t.Errorf("error %v, applied %d, sent %d", err, len(applied), len(s.sent))
	}
}

func TestDeletingWhatIsGoneSucceeds(t *testing.T) {
	s := &server{answers: []error{apierrors.NewNotFound(services, "a")}}
	if _, err := New(s, nil).Apply(context.Background(), []plan.Action{{Verb: plan.Delete, Object: service("a"), UID: "u", ResourceVersion: "1"}}); err != nil {
		t.Error(err)
	}
}

func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := &server{}
	if _, err := New(s, nil).Apply(ctx, []plan.Action{{Verb: plan.Create, Object: slice("1")}}); !errors.Is(err, context.Canceled) || len(s.sent) > 0 {
		t.Errorf("error %v, sent %v", err, s.sent)
	}
}
