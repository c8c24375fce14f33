// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// clusterProperty is read as unstructured, because its Go module is not published.
var clusterProperty = schema.GroupVersionKind{Group: "about.k8s.io", Version: "v1beta1", Kind: "ClusterProperty"}

// identity identifies this member.
type identity struct {
	cluster model.ClusterID
	set     string
	uid     types.UID
}

// findIdentity reads the id and the clusterset from ClusterProperty (KEP-2149) if
// it exists, else from the options. It returns an error if both are set and
// differ. The UID of the kube-system namespace distinguishes this cluster from
// another one that has or had the same id.
func findIdentity(ctx context.Context, c client.Reader, o Options) (identity, error) {
	id, errID := agree(ctx, c, model.LabelClusterID, "--cluster-id", o.ClusterID, validateClusterID)
	set, errSet := agree(ctx, c, model.LabelClusterSet, "--clusterset", o.ClusterSet, validateClusterSet)
	if err := cmp.Or(errID, errSet); err != nil {
		return identity{}, err
	}
	system := &corev1.Namespace{}
	if err := c.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return identity{}, fmt.Errorf("read Namespace %s, whose UID identifies this cluster: %w", metav1.NamespaceSystem, err)
	}
	return identity{cluster: model.ClusterID(id), set: set, uid: system.UID}, nil
}

// agree returns the value of a ClusterProperty and of a valid flag, which must not
// differ.
func agree(ctx context.Context, c client.Reader, property, flag, given string, validate func(string) error) (string, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(clusterProperty)
	errGet := client.IgnoreNotFound(c.Get(ctx, types.NamespacedName{Name: property}, object))
	if meta.IsNoMatchError(errGet) {
		errGet = nil
	}
	stored, _, errValue := unstructured.NestedString(object.Object, "spec", "value")
	switch err := cmp.Or(errGet, errValue); {
	case err != nil:
		return "", fmt.Errorf("read ClusterProperty %s: %w", property, err)
	case stored == "" && given == "":
		return "", fmt.Errorf("%s is not set and ClusterProperty %s does not exist: set one of them", flag, property)
	case stored == "":
		return given, nil
	case given != "" && given != stored:
		return "", fmt.Errorf("%s is %q but ClusterProperty %s is %q: leave the flag out, or correct the value that is wrong", flag, given, property, stored)
	}
	if err := validate(stored); err != nil {
		return "", fmt.Errorf("ClusterProperty %s, spec.value: %w", property, err)
	}
	return stored, nil
}

// agentInfo publishes the properties of this agent as annotations of the leader
// Lease, for `kubectl comity`. It runs on the leader. Leader election updates the
// same object. This patches only the annotations; leader election reads them
// after its next update conflicts.
type agentInfo struct {
	// reader has no cache, because nothing else watches Leases.
	reader client.Reader
	writer client.Writer
	lease  types.NamespacedName
	info   model.AgentInfo
	// interval is how often the Lease is read.
	interval time.Duration
	log      logr.Logger
}

// Start implements manager.Runnable, which by default runs on the leader.
func (a *agentInfo) Start(ctx context.Context) error {
	said := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := a.update(ctx); err == nil {
			said = ""
		} else if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			a.log.Error(err, "annotations of the leader Lease are not up to date, retrying", "namespace", a.lease.Namespace, "name", a.lease.Name)
		}
	}, a.interval)
	return nil
}

// update patches the annotations that are missing or differ.
func (a *agentInfo) update(ctx context.Context) error {
	lease := &coordinationv1.Lease{}
	if err := a.reader.Get(ctx, a.lease, lease); apierrors.IsNotFound(err) {
		return nil // leader election creates it within seconds
	} else if err != nil {
		return fmt.Errorf("read Lease %s: %w", a.lease, err)
	}
	before := lease.DeepCopy()
	lease.Annotations = labels.Merge(lease.Annotations, a.info.Annotations())
	if maps.Equal(before.Annotations, lease.Annotations) {
		return nil
	}
	if err := a.writer.Patch(ctx, lease, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch the annotations of Lease %s: %w", a.lease, err)
	}
	return nil
}

// describe returns the properties of this agent.
func describe(o Options, self identity) model.AgentInfo {
	mode := model.ExchangeMesh
	if o.ExchangeKubeconfig != "" {
		mode = model.ExchangeHub
	}
	return model.AgentInfo{
		ID: self.cluster, Set: self.set, Version: version, Mode: mode,
		ServiceAccount: os.Getenv("POD_SERVICE_ACCOUNT"), PodCIDRs: o.pods, ServiceCIDRs: o.services,
	}
}
