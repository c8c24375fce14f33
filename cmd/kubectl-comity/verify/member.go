// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// pollInterval is the pause between two questions to a cluster.
const pollInterval = 500 * time.Millisecond

// member is one cluster that takes part.
type member struct {
	target *command.Target
	agent  agent.Agent
	// pod serves what this cluster exports, and fetches what the others do.
	pod *corev1.Pod
	// namespace is the temporary one, of the same name everywhere.
	namespace string
	// service is the name of what this cluster exports.
	service string
	// families are those of its Service.
	families []corev1.IPFamily
	// failed is why nothing of this cluster can be fetched, and failedAt the stage.
	failed   error
	failedAt Stage
}

func (m *member) id() string { return string(m.agent.ID) }

// prepare makes the Pod, the Service and the export, and waits until the Pod is ready.
func (m *member) prepare(ctx context.Context) {
	m.failedAt = StageCreate
	if m.failed = m.create(ctx); m.failed == nil {
		m.failed = agent.AwaitPod(ctx, m.target, m.pod)
	}
	if m.failed != nil {
		return
	}
	m.failedAt = StageAdmit
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: m.service}}
	if err := m.target.Client.Create(ctx, export); err != nil {
		m.failed = m.target.Errorf("create ServiceExport %s/%s: %w", m.namespace, m.service, err)
	}
}

func (m *member) create(ctx context.Context) error {
	// A Pod is refused before a controller has made the account of the new namespace.
	err := command.Await(ctx, pollInterval, func(ctx context.Context) error {
		return m.target.Get(ctx, m.namespace, "default", &corev1.ServiceAccount{})
	})
	if err == nil {
		err = m.copyPullSecrets(ctx)
	}
	if err != nil {
		return err
	}
	service := newService(m.namespace, m.service)
	m.pod = m.agent.NewPod(m.namespace, podName, podLabels, answerOf(m.id(), m.namespace))
	for _, object := range []client.Object{m.pod, service} {
		if err := m.target.Client.Create(ctx, object); err != nil {
			return m.target.Errorf("create %T %s/%s: %w", object, m.namespace, object.GetName(), err)
		}
	}
	m.families = service.Spec.IPFamilies
	return nil
}

// copyPullSecrets lets the temporary Pod pull the image that the agent runs.
func (m *member) copyPullSecrets(ctx context.Context) error {
	for _, reference := range m.agent.Pod.Spec.ImagePullSecrets {
		var from corev1.Secret
		if err := m.target.Get(ctx, m.agent.Namespace, reference.Name, &from); err != nil {
			return err
		}
		to := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: from.Name}, Type: from.Type, Data: from.Data}
		if err := m.target.Client.Create(ctx, to); err != nil {
			return m.target.Errorf("copy the agent's pull secret: %w", err)
		}
	}
	return nil
}

// awaitImport waits until this cluster imports what from exports.
func (m *member) awaitImport(ctx context.Context, from *member) error {
	err := command.Await(ctx, pollInterval, func(ctx context.Context) error {
		var found mcsv1beta1.ServiceImport
		if err := m.target.Client.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: from.service}, &found); apierrors.IsNotFound(err) {
			return errors.New("there is no ServiceImport")
		} else if err != nil {
			return err
		}
		if !slices.ContainsFunc(found.Status.Clusters, func(source mcsv1beta1.ClusterStatus) bool { return source.Cluster == from.id() }) {
			return fmt.Errorf("its ServiceImport does not name cluster %s", from.id())
		}
		ready := meta.FindStatusCondition(found.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
		switch {
		case ready == nil:
			return errors.New("its ServiceImport is not ready")
		case ready.Status != metav1.ConditionTrue:
			return fmt.Errorf("its ServiceImport is not ready: %s: %s", ready.Reason, ready.Message)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("not imported: %w", err)
	}
	return nil
}

// exportProblem says by the export's own conditions why it is not imported.
func (m *member) exportProblem(ctx context.Context) (stage Stage, text string) {
	var found mcsv1beta1.ServiceExport
	if err := m.target.Client.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: m.service}, &found); err != nil {
		return StageImport, err.Error()
	}
	for _, kind := range []string{"Admitted", "Valid", "Ready", "Available"} {
		c := meta.FindStatusCondition(found.Status.Conditions, kind)
		switch {
		case c == nil || c.Status == metav1.ConditionTrue:
		case kind == "Admitted":
			return StageAdmit, c.Reason + ": " + c.Message
		default:
			return StageImport, kind + " is " + string(c.Status) + ": " + c.Reason + ": " + c.Message
		}
	}
	if len(found.Status.Conditions) == 0 {
		return StageImport, "the ServiceExport has no condition: no agent of the exporting cluster has seen it"
	}
	return StageImport, ""
}

// remove deletes the namespace and waits until it is gone.
func (m *member) remove(ctx context.Context) error {
	err := m.target.Client.Delete(ctx, newNamespace(m.namespace))
	if err == nil {
		err = command.Await(ctx, pollInterval, func(ctx context.Context) error {
			err := m.target.Client.Get(ctx, client.ObjectKey{Name: m.namespace}, &corev1.Namespace{})
			if err == nil {
				return errors.New("it is not gone yet")
			}
			return client.IgnoreNotFound(err)
		})
	}
	if client.IgnoreNotFound(err) != nil {
		return m.target.Errorf("delete namespace %s: %w", m.namespace, err)
	}
	return nil
}

const (
	// namespacePrefix is how the temporary namespaces begin.
	namespacePrefix = "comity-verify-"
	// podName is the one Pod in each namespace: it serves, and it fetches.
	podName = "verify"
)

var podLabels = map[string]string{"app.kubernetes.io/name": "comity-verify"}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"app.kubernetes.io/managed-by":       "kubectl-comity",
		"pod-security.kubernetes.io/enforce": "restricted",
	}}}
}

// serviceName is that of the export of one cluster: each has its own, so that
// an answer says whose it is.
func serviceName(index int) string { return fmt.Sprintf("verify-%d", index+1) }

// answerOf is what the Pod of a cluster answers.
func answerOf(id, namespace string) string { return id + " in " + namespace }

// newService has both IP families where the cluster has both.
func newService(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: podLabels, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(agent.ServePort)}},
		},
	}
}
