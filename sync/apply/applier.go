// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// neverVersion is a resource version that no object has: etcd counts from 1
// and gives its first key 2. Sent with an apply, it lets the API server create
// the object and makes it answer 409 if there is one already, in one atomic
// step. Without it an apply would merge into a foreign object with which it
// happens to disagree in no field.
const neverVersion = "1"

// Applier executes actions. It is safe for use from many goroutines.
type Applier struct {
	client client.Client
	writes *prometheus.CounterVec
}

// New returns an Applier that writes through c and counts in registry
// (comity_sync_writes_total by kind, verb and result); a nil registry counts nowhere.
func New(c client.Client, registry prometheus.Registerer) *Applier {
	return &Applier{
		client: c,
		writes: promauto.With(registry).NewCounterVec(prometheus.CounterOpts{
			Name: "comity_sync_writes_total",
			Help: "Writes of sync objects by kind, verb (create, update, delete) and result (ok or the class of the error).",
		}, []string{"kind", "verb", "result"}),
	}
}

// Apply makes the writes in order and stops at the first that fails. It returns
// the objects that were created or updated as the API server stored them, in
// order, also beside an error. The error is an *Error, or ctx's.
func (a *Applier) Apply(ctx context.Context, actions []plan.Action) ([]plan.Object, error) {
	var applied []plan.Object
	for _, action := range actions {
		if err := ctx.Err(); err != nil {
			return applied, fmt.Errorf("%s: %w", action, err)
		}
		object, err := a.one(ctx, action)
		kind := action.Object.GetObjectKind().GroupVersionKind().Kind
		if err != nil {
			class := classify(action.Verb, err)
			a.writes.WithLabelValues(kind, action.Verb.String(), string(class)).Inc()
			return applied, &Error{Action: action, Class: class, err: err}
		}
		a.writes.WithLabelValues(kind, action.Verb.String(), "ok").Inc()
		if object != nil {
			applied = append(applied, object)
		}
	}
	return applied, nil
}

func (a *Applier) one(ctx context.Context, action plan.Action) (plan.Object, error) {
	switch action.Verb {
	case plan.Create:
		return a.patch(ctx, action, "resourceVersion", neverVersion)
	case plan.Update:
		if action.UID == "" {
			return nil, fmt.Errorf("the plan gives no UID, without which the wrong object could be changed")
		}
		return a.patch(ctx, action, "uid", string(action.UID), client.ForceOwnership)
	case plan.Delete:
		return nil, a.remove(ctx, action)
	}
	return nil, fmt.Errorf("unknown verb %d", int(action.Verb))
}

// patch applies the object with one precondition in its metadata. It sends JSON
// of its own making, because a typed object would claim status and creationTimestamp.
func (a *Applier) patch(ctx context.Context, action plan.Action, precondition, value string, opts ...client.PatchOption) (plan.Object, error) {
	body, err := encode(action.Object, precondition, value)
	if err != nil {
		return nil, err
	}
	// The answer is decoded into an object of the same type: protobuf where the
	// type has it, and nothing of the request is changed.
	into, ok := reflect.New(reflect.TypeOf(action.Object).Elem()).Interface().(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no Kubernetes object", action.Object)
	}
	into.SetNamespace(action.Object.GetNamespace())
	into.SetName(action.Object.GetName())
	gvk := action.Object.GetObjectKind().GroupVersionKind()
	into.GetObjectKind().SetGroupVersionKind(gvk)
	opts = append(opts, client.FieldOwner(model.FieldOwner))
	if err := a.client.Patch(ctx, into, client.RawPatch(types.ApplyPatchType, body), opts...); err != nil {
		return nil, err
	}
	into.GetObjectKind().SetGroupVersionKind(gvk)
	return into, nil
}

func encode(object plan.Object, precondition, value string) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	delete(content, "status")
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("encode: no metadata")
	}
	for _, field := range []string{"creationTimestamp", "managedFields", "uid", "resourceVersion", "generation"} {
		delete(metadata, field)
	}
	metadata[precondition] = value
	dropNulls(content)
	if spec, ok := content["spec"].(map[string]any); ok {
		dropNulls(spec)
	}
	return json.Marshal(content)
}

// dropNulls turns null lists into absent ones where that means the same, and
// into empty ones where the API requires the field to be there.
func dropNulls(m map[string]any) {
	for key, v := range m {
		if v != nil {
			continue
		}
		if key == "ports" || key == "endpoints" {
			m[key] = []any{}
		} else {
			delete(m, key)
		}
	}
}

func (a *Applier) remove(ctx context.Context, action plan.Action) error {
	if action.UID == "" || action.ResourceVersion == "" {
		return fmt.Errorf("the plan gives no UID and resource version, without which the wrong object could be deleted")
	}
	object, ok := action.Object.(client.Object)
	if !ok {
		return fmt.Errorf("%T is no Kubernetes object", action.Object)
	}
	uid, version := action.UID, action.ResourceVersion
	err := a.client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if apierrors.IsNotFound(err) {
		return nil // gone already, which is all that was wanted
	}
	return err
}
