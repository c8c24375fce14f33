// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Fault is what goes wrong with one call.
type Fault int

// The faults that a call can meet.
const (
	None Fault = iota
	// Fail answers 500 and does nothing.
	Fail
	// Lose does what was asked, and the answer gets lost.
	Lose
	// Clash answers 409 and does nothing.
	Clash
	// CrashBefore and CrashAfter end the process at the call.
	CrashBefore
	CrashAfter
)

// Faults are how many there are, None included.
const Faults = int(CrashAfter) + 1

// String is one word.
func (f Fault) String() string {
	return [...]string{"none", "fail", "lose", "clash", "crash before", "crash after"}[f]
}

// Crashed is what a crash panics with.
type Crashed struct{}

// Client is how one process writes to a server. Every method that the agent has
// no business to call panics, as the embedded Client is nil.
type Client struct {
	client.Client
	Server *Server
	Actor  string
	// Fault is asked before each call; it may do anything in between.
	Fault func(verb string, ref Ref) Fault
}

// Patch is server-side apply, or a JSON merge patch.
func (c *Client) Patch(_ context.Context, into client.Object, patch client.Patch, opts ...client.PatchOption) error {
	ref := RefOf(into)
	var options client.PatchOptions
	options.ApplyOptions(opts)
	if patch.Type() != types.ApplyPatchType && patch.Type() != types.MergePatchType {
		return apierrors.NewMethodNotSupported(resource(ref), string(patch.Type()))
	}
	data, err := patch.Data(into)
	if err != nil {
		return err
	}
	desired := map[string]any{}
	if err := json.Unmarshal(data, &desired); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	metadata, _ := desired["metadata"].(map[string]any)
	want := precondition{}
	want.uid, _ = metadata["uid"].(string)
	want.version, _ = metadata["resourceVersion"].(string)
	for _, key := range []string{"uid", "resourceVersion"} {
		delete(metadata, key)
	}
	return c.call("apply", ref, func() error {
		do := c.Server.apply
		if patch.Type() == types.MergePatchType {
			do = c.Server.patch
		}
		result, err := do(c.Actor, ref, desired, want)
		if err != nil {
			return err
		}
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(result.DeepCopyObject()).Elem())
		return nil
	})
}

// Update replaces an object that has the version of o, and no other.
func (c *Client) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	ref := RefOf(o)
	return c.call("update", ref, func() error {
		result, err := c.Server.replace(c.Actor, ref, o)
		if err != nil {
			return err
		}
		reflect.ValueOf(o).Elem().Set(reflect.ValueOf(result.DeepCopyObject()).Elem())
		return nil
	})
}

// Delete deletes an object that meets the preconditions.
func (c *Client) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	ref := RefOf(o)
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	return c.call("delete", ref, func() error {
		current := c.Server.Get(ref)
		if current == nil {
			return apierrors.NewNotFound(resource(ref), ref.Name)
		}
		if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != current.GetUID() ||
			p.ResourceVersion != nil && *p.ResourceVersion != current.GetResourceVersion()) {
			return apierrors.NewConflict(resource(ref), ref.Name, fmt.Errorf("the precondition does not hold"))
		}
		c.Server.Remove(c.Actor, ref)
		return nil
	})
}

// ApplyImportStatus applies the status of that very version of a ServiceImport.
func (c *Client) ApplyImportStatus(seen *mcsv1beta1.ServiceImport, status mcsv1beta1.ServiceImportStatus) error {
	ref := RefOf(seen)
	return c.call("status", ref, func() error {
		current := c.Server.objects[ref]
		now, is := current.object.(*mcsv1beta1.ServiceImport)
		if !is || now.ResourceVersion != seen.ResourceVersion || now.UID != seen.UID {
			return apierrors.NewConflict(resource(ref), ref.Name, fmt.Errorf("the object has been modified"))
		}
		now = now.DeepCopy()
		now.Status = status
		c.Server.store(c.Actor, ref, now, current.applied, true)
		return nil
	})
}

func (c *Client) call(verb string, ref Ref, do func() error) error {
	fault := None
	if c.Fault != nil {
		fault = c.Fault(verb, ref)
	}
	switch fault {
	case Fail:
		return apierrors.NewInternalError(fmt.Errorf("injected"))
	case Clash:
		return apierrors.NewConflict(resource(ref), ref.Name, fmt.Errorf("injected"))
	case CrashBefore:
		panic(Crashed{})
	}
	err := do()
	switch fault {
	case Lose:
		return apierrors.NewTimeoutError("injected", 0)
	case CrashAfter:
		panic(Crashed{})
	}
	return err
}
