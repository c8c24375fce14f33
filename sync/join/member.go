// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Verb is what became of an object.
type Verb string

// The verbs of a Step.
const (
	Created   Verb = "created"
	Changed   Verb = "changed"
	Unchanged Verb = "unchanged"
	Deleted   Verb = "deleted"
	// Kept: Disconnect found an object of that name that no join made.
	Kept Verb = "kept"
	// Pending: the agent has not removed what it imported yet. The Peer stays, so that
	// it does so when it runs, and Disconnect can be repeated then.
	Pending Verb = "pending"
)

// Step is one object that a join, Disconnect or Purge dealt with.
type Step struct {
	Cluster model.ClusterID
	// Kind, Namespace and Name identify the object; Namespace is empty for Namespaces and Peers.
	Kind, Namespace, Name string

	Verb Verb
	// Note says more, such as how long a credential is valid; often empty.
	Note string
}

// String is the step in one line.
func (s Step) String() string {
	line := fmt.Sprintf("%s: %s %s %s", s.Cluster, s.Kind, display(client.ObjectKey{Namespace: s.Namespace, Name: s.Name}), s.Verb)
	if s.Note != "" {
		line += " (" + s.Note + ")"
	}
	return line
}

// member is a cluster with a connection to it.
type member struct {
	Cluster
	opts   Options
	client client.Client
	// exchange are the exchange namespaces there, and what lets others read them; none at
	// the members of a hub.
	exchange []client.Object
	uid      types.UID // after identify
	ranges   Ranges    // after learn
	// replaced is true if a Peer has the id of this cluster and another UID; after planPeer.
	replaced bool
}

// newScheme knows the kinds that this package applies.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// open prepares a client for c, which has its defaults; it sends no request.
func open(c Cluster, opts Options) (*member, error) {
	if c.RESTConfig == nil {
		return nil, c.named(errors.New("there is no access to it; give the kubeconfig of an administrator"))
	}
	config := rest.AddUserAgent(rest.CopyConfig(c.RESTConfig), FieldOwner)
	if config.QPS == 0 {
		// client-go's default of 5 a second would make a join of some forty
		// requests take ten seconds.
		config.QPS, config.Burst = 50, 100
	}
	cl, err := client.New(config, client.Options{Scheme: newScheme()})
	return &member{Cluster: c, opts: opts.withDefaults(), client: cl}, c.named(err)
}

// get reads an object.
func (m *member) get(ctx context.Context, namespace, name string, into client.Object) error {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if err := m.client.Get(ctx, key, into); err != nil {
		return fmt.Errorf("read %s %s: %w", m.kindOf(into).Kind, display(key), err)
	}
	return nil
}

// each calls do for all members until it fails.
func each(members []*member, do func(*member) error) error {
	for _, m := range members {
		if err := m.named(do(m)); err != nil {
			return err
		}
	}
	return nil
}

// secret is the one of a name in Comity's namespace; empty if there is none.
func (m *member) secret(ctx context.Context, name string) (found corev1.Secret, err error) {
	err = m.get(ctx, m.Namespace, name, &found)
	return found, client.IgnoreNotFound(err)
}

// apply makes object what it should be and reports what that took.
func (m *member) apply(ctx context.Context, object client.Object, note string) error {
	gvk := m.kindOf(object)
	before := &unstructured.Unstructured{}
	before.SetGroupVersionKind(gvk)
	key := client.ObjectKeyFromObject(object)
	err, verb := m.get(ctx, key.Namespace, key.Name, before), Changed
	if apierrors.IsNotFound(err) {
		verb = Created
	} else if err != nil {
		return err
	}
	switch {
	case verb == Changed && gvk.Kind == "Namespace" && key.Name == m.Namespace:
		verb = Unchanged // it is the release's, or a user's, and needs nothing of ours
	case m.opts.DryRun && (verb == Created || gvk.Kind == "Secret"):
		// Its namespace or the credential may be missing, so that the API server cannot be asked.
	default:
		wanted := m.toApply(object)
		options := []client.ApplyOption{client.FieldOwner(FieldOwner), client.ForceOwnership}
		if m.opts.DryRun {
			options = append(options, client.DryRunAll)
		}
		if err := m.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), options...); err != nil {
			return fmt.Errorf("apply %s %s: %w", gvk.Kind, display(key), err)
		}
		for _, object := range []*unstructured.Unstructured{before, wanted} {
			object.SetManagedFields(nil)
			object.SetResourceVersion("")
		}
		if equality.Semantic.DeepEqual(before.Object, wanted.Object) {
			verb = Unchanged
		}
	}
	m.report(object, verb, note)
	return nil
}

// toApply is object with nothing in it that it does not mean to set.
func (m *member) toApply(object client.Object) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	utilruntime.Must(err) // not reached: every kind of the scheme has such a form
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(m.kindOf(object))
	unstructured.RemoveNestedField(content, "status")
	if spec, ok := content["spec"].(map[string]any); ok && len(spec) == 0 {
		delete(content, "spec")
	}
	return u
}

// remove deletes each of the objects that a join made and that is still the same one.
func (m *member) remove(ctx context.Context, objects ...client.Object) error {
	isOurs := func(found metav1.Object) bool { return model.AppliedBy(found, FieldOwner, "") }
	for _, object := range objects {
		if err := m.removeIf(ctx, object, isOurs, "it was not made by a join"); err != nil {
			return err
		}
	}
	return nil
}

// removeIf deletes object if it is ours; otherwise it reports why it is kept.
func (m *member) removeIf(ctx context.Context, object client.Object, ours func(metav1.Object) bool, otherwise string) error {
	gvk := m.kindOf(object)
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(gvk)
	key := client.ObjectKeyFromObject(object)
	if err := m.get(ctx, key.Namespace, key.Name, found); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !ours(found) {
		m.report(object, Kept, otherwise)
		return nil
	}
	if found.DeletionTimestamp != nil {
		return nil
	}
	if !m.opts.DryRun {
		if err := m.client.Delete(ctx, found, client.Preconditions{UID: &found.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s: %w", gvk.Kind, display(key), err)
		}
	}
	m.report(object, Deleted, "")
	return nil
}

func (m *member) report(object client.Object, verb Verb, note string) {
	m.opts.Progress(Step{
		Cluster: m.ID, Kind: m.kindOf(object).Kind, Namespace: object.GetNamespace(), Name: object.GetName(), Verb: verb, Note: note,
	})
}

// kindOf is the kind of an object, all of which are in the scheme, or state their kind themselves.
func (m *member) kindOf(object runtime.Object) schema.GroupVersionKind {
	kind, _ := m.client.GroupVersionKindFor(object)
	return kind
}

// display is a key as people write it: no slash before a Namespace.
func display(key client.ObjectKey) string { return strings.TrimPrefix(key.String(), "/") }
