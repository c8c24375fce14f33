// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package apply executes the actions of package plan. It is the only package in
// sync that writes objects.
//
// It takes actions and a client, and returns the objects as the API server stored
// them, or an error whose class says when to retry. Every write has a precondition,
// so that it changes the object that was planned for, or none: it never overwrites,
// changes or deletes a foreign object. It decides nothing.
package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// neverVersion is a resource version that no object has: etcd counts from 1, and
// its first key has version 2. With it in an apply, the API server creates the
// object, or answers 409 if the object exists, in one atomic step. Without it the
// apply would be merged into a foreign object if no field conflicts.
const neverVersion = "1"

// Applier executes actions. It is safe for use from many goroutines.
type Applier struct {
	client client.Client
	writes *prometheus.CounterVec
	leaves func(plan.Action) bool
}

// New returns an Applier that writes with c and counts the writes in registry
// (comity_sync_writes_total by kind, verb and result), or nowhere if registry is
// nil.
func New(c client.Client, registry prometheus.Registerer) *Applier {
	return &Applier{client: c, writes: promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
		Name: "comity_sync_writes_total",
		Help: "Writes of sync objects by kind, verb (create, update, adopt, delete) and result (ok or the class of the error).",
	}, []string{"kind", "verb", "result"})}
}

// Through returns an Applier that writes with c and shares the metric of a.
func (a Applier) Through(c client.Client) *Applier {
	a.client = c
	return &a
}

// Leaving returns an Applier that asks before each action whether to leave it out.
func (a Applier) Leaving(leaves func(plan.Action) bool) *Applier {
	a.leaves = leaves
	return &a
}

// Apply makes the writes in order and stops at the first that fails, unless the API
// server refuses it. One with a plan.Action.Source costs only that source: after it,
// only the actions with plan.Action.AfterAll are left out. After an update without one,
// such as that of a derived Service, slices that exist are still updated: clients go on
// using what exists. Apply returns the objects that were created or updated, in order
// and as the API server stored them, also if there is an error. The error joins one
// *Error for each write that failed, that at which Apply stopped first; or it wraps that
// of ctx.
func (a *Applier) Apply(ctx context.Context, actions []plan.Action) ([]plan.Object, error) {
	var applied []plan.Object
	var refused []error
	updatesOnly := false
	for _, action := range actions {
		if err := ctx.Err(); err != nil {
			return applied, fmt.Errorf("%s: %w", action, err)
		}
		isUpdate := action.Verb == plan.Update || action.Verb == plan.Annotate
		if action.AfterAll && len(refused) > 0 || updatesOnly && (!isUpdate || action.Source == "") ||
			a.leaves != nil && a.leaves(action) {
			continue
		}
		object, err := a.one(ctx, action)
		kind := action.Object.GetObjectKind().GroupVersionKind().Kind
		if err == nil {
			a.writes.WithLabelValues(kind, string(action.Verb), "ok").Inc()
			if object != nil {
				applied = append(applied, object)
			}
			continue
		}
		failed := &Error{Action: action, Class: classify(action.Verb, err), err: err}
		a.writes.WithLabelValues(kind, string(action.Verb), string(failed.Class)).Inc()
		if failed.Class != Refused || action.Source == "" && !isUpdate {
			return applied, errors.Join(append([]error{failed}, refused...)...)
		}
		updatesOnly = updatesOnly || action.Source == ""
		refused = append(refused, failed)
	}
	return applied, errors.Join(refused...)
}

func (a *Applier) one(ctx context.Context, action plan.Action) (plan.Object, error) {
	if action.Verb == plan.Create {
		return a.patch(ctx, action, "", neverVersion)
	}
	versioned := action.Verb == plan.Delete || action.Verb == plan.Annotate || action.Strip != nil
	if action.UID == "" || versioned && action.ResourceVersion == "" {
		return nil, errors.New("the action has no UID or no resource version, without which the wrong object could be changed")
	}
	switch action.Verb {
	case plan.Update, plan.Adopt:
		return a.update(ctx, action)
	case plan.Delete:
		err := a.client.Delete(ctx, action.Object, client.Preconditions{UID: &action.UID, ResourceVersion: &action.ResourceVersion})
		return nil, client.IgnoreNotFound(err) // already deleted
	case plan.Annotate:
		return a.merge(ctx, action, action.Strip, nil)
	}
	return nil, fmt.Errorf("unknown verb %q", action.Verb)
}

// update makes the writes of an Update or Adopt: strip, apply and release. If one
// of them fails, the next plan contains only the writes that are still outstanding.
func (a *Applier) update(ctx context.Context, action plan.Action) (plan.Object, error) {
	if action.Strip != nil {
		if _, err := a.merge(ctx, action, action.Strip, nil); err != nil {
			return nil, fmt.Errorf("strip: %w", err)
		}
	}
	if desired, is := action.Object.(*discoveryv1.EndpointSlice); is && action.Read != nil {
		replaced, err := a.replace(ctx, desired, action.Read)
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return replaced, err
		}
		// It is not as it was read, and an apply keeps what others changed.
	}
	version := "" // any: a strip has made another one
	if action.Strip == nil {
		version = action.ResourceVersion
	}
	applied, err := a.patch(ctx, action, action.UID, version, client.ForceOwnership)
	if err != nil || action.Verb != plan.Adopt {
		return applied, err
	}
	// It keeps Comity as a field owner by what it applies, and the owners of subresources, which are not adopted.
	// A strip that set a field would keep a later apply from removing it.
	owners := model.Without(applied.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return model.IsByOthers(e, "")
	})
	own := map[string]any{"managedFields": owners, "resourceVersion": applied.GetResourceVersion()}
	if applied, err = a.merge(ctx, action, action.Release, own); err != nil {
		return nil, fmt.Errorf("remove its former owner: %w", err)
	}
	return applied, nil
}

// replace updates a slice to have the desired endpoints and ports. All else stays as it
// was read, which is why the API server refuses it if the slice has changed since.
func (a *Applier) replace(ctx context.Context, desired, read *discoveryv1.EndpointSlice) (plan.Object, error) {
	out := &discoveryv1.EndpointSlice{
		TypeMeta: desired.TypeMeta, ObjectMeta: *read.ObjectMeta.DeepCopy(), AddressType: desired.AddressType,
		Endpoints: desired.Endpoints, Ports: desired.Ports,
	}
	out.ManagedFields = nil // the API server goes on from those that it has
	if err := a.client.Update(ctx, out, client.FieldOwner(model.FieldOwner)); err != nil {
		return nil, err
	}
	out.TypeMeta = desired.TypeMeta
	return out, nil
}

// merge sends a JSON merge patch, with the action's UID and version as preconditions, and
// with more metadata, which may have another version.
func (a *Applier) merge(ctx context.Context, action plan.Action, patch, more map[string]any) (plan.Object, error) {
	metadata := map[string]any{"uid": action.UID, "resourceVersion": action.ResourceVersion}
	given, _ := patch["metadata"].(map[string]any)
	maps.Copy(metadata, given)
	maps.Copy(metadata, more)
	body := map[string]any{}
	maps.Copy(body, patch)
	body["metadata"] = metadata
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return a.send(ctx, action, client.RawPatch(types.MergePatchType, data))
}

// patch applies the object with the UID and version that it is to have in its metadata. The
// usual encoding would apply the status, too. A version without a UID does not keep an apply
// from creating an object that is not there.
func (a *Applier) patch(ctx context.Context, action plan.Action, uid types.UID, version string, opts ...client.PatchOption) (plan.Object, error) {
	body, err := encode(action.Object, uid, version)
	if err != nil {
		return nil, err
	}
	return a.send(ctx, action, client.RawPatch(types.ApplyPatchType, body), opts...)
}

// send sends a patch of the object of an action, and returns the stored object.
func (a *Applier) send(ctx context.Context, action plan.Action, patch client.Patch, opts ...client.PatchOption) (plan.Object, error) {
	// The answer is decoded into a new object of the same type, so that protobuf
	// is used where the type supports it, and the action is not changed.
	into, _ := reflect.New(reflect.TypeOf(action.Object).Elem()).Interface().(client.Object)
	into.SetNamespace(action.Object.GetNamespace())
	into.SetName(action.Object.GetName())
	gvk := action.Object.GetObjectKind().GroupVersionKind()
	into.GetObjectKind().SetGroupVersionKind(gvk)
	opts = append(opts, client.FieldOwner(model.FieldOwner))
	if err := a.client.Patch(ctx, into, patch, opts...); err != nil {
		return nil, err
	}
	into.GetObjectKind().SetGroupVersionKind(gvk)
	return into, nil
}

// encode is the object with these preconditions in its metadata and without a status. Slices,
// which are written most often and may have hundreds of endpoints, have none.
func encode(object plan.Object, uid types.UID, version string) ([]byte, error) {
	shallow := reflect.New(reflect.TypeOf(object).Elem())
	shallow.Elem().Set(reflect.ValueOf(object).Elem())
	out, _ := shallow.Interface().(plan.Object)
	out.SetUID(uid)
	out.SetResourceVersion(version)
	slice, isSlice := out.(*discoveryv1.EndpointSlice)
	if isSlice && slice.Endpoints == nil { // the API server refuses null
		slice.Endpoints = []discoveryv1.Endpoint{}
	}
	if isSlice && slice.Ports == nil {
		slice.Ports = []discoveryv1.EndpointPort{}
	}
	content, err := json.Marshal(out)
	if err != nil || isSlice {
		return content, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(content, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	return json.Marshal(fields)
}

// Class says how to handle an error. It is the result label of the metric.
type Class string

const (
	// Conflict means that the object is not the one that was planned for, or that an object
	// to create exists: it is foreign, or Comity created it and the cache does not show it
	// yet. Read and plan again at once; if it is foreign, the next plan has a problem for it.
	Conflict Class = "conflict"
	// NamespaceMissing means that the namespace does not exist or is being deleted.
	// Wait for an event of the namespace.
	NamespaceMissing Class = "namespace"
	// Refused means that the API server refuses the object until it, a permission or
	// an admission rule changes. Report it and retry rarely.
	Refused Class = "refused"
	// Unavailable is any other error. Retry with backoff.
	Unavailable Class = "unavailable"
)

// Error is an action that failed. Its text names the verb, the object and the
// API server's answer.
type Error struct {
	Action plan.Action
	Class  Class
	err    error
}

// Error names the action and the cause.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Action, e.err) }

// Unwrap returns the API server's error.
func (e *Error) Unwrap() error { return e.err }

// ClassOf returns the class of the first Error in err's chain, and Unavailable if
// there is none. Of the error of Apply that is the class of the write at which it
// stopped, if it did.
func ClassOf(err error) Class {
	if e, is := errors.AsType[*Error](err); is {
		return e.Class
	}
	return Unavailable
}

// Refusals returns the problems with an import that the refused writes in the error
// of Apply are. Of each source cluster there is one, sorted by cluster.
func Refusals(err error) []model.Problem {
	refused := map[model.ClusterID][]string{}
	if joined, is := err.(interface{ Unwrap() []error }); is { // as Apply does
		for _, one := range joined.Unwrap() {
			if e, is := errors.AsType[*Error](one); is && e.Class == Refused {
				refused[e.Action.Source] = append(refused[e.Action.Source], e.Error())
			}
		}
	}
	var out []model.Problem
	for _, source := range slices.Sorted(maps.Keys(refused)) {
		texts := refused[source]
		message := texts[0]
		if source != "" {
			message = fmt.Sprintf("the API server refuses EndpointSlices of cluster %s (%d), whose endpoints in them are missing or as they were: %s",
				source, len(texts), texts[0])
		}
		out = append(out, model.Problem{Reason: model.ReasonRefused, Cluster: source, Message: message})
	}
	return out
}

// classify follows this table; the first match wins:
//
//	answer                                             class
//	403 NamespaceTerminating, 404 about the namespace  NamespaceMissing
//	409                                                Conflict
//	404 but on create                                  Conflict: somebody deleted the object after the plan was made
//	422 because of the UID                             Conflict: the object was made again
//	400, 403, 413, other 422                           Refused
//	anything else                                      Unavailable
func classify(verb plan.Verb, err error) Class {
	var details metav1.StatusDetails
	if answer := apierrors.APIStatus(nil); errors.As(err, &answer) && answer.Status().Details != nil {
		details = *answer.Status().Details
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err) && details.Kind == "namespaces":
		return NamespaceMissing
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err),
		// Where the CRD of the kind does not exist, no handler serves the path, and the answer is not a Status of the API.
		apierrors.IsNotFound(err) && verb != plan.Create && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse),
		apierrors.IsInvalid(err) && slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" }):
		return Conflict
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return Refused
	}
	return Unavailable
}
