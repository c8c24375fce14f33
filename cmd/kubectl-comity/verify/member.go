// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
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
	m.failed, m.failedAt = m.create(ctx), StageCreate
	if m.failed != nil {
		return
	}
	if m.failed = m.awaitPod(ctx); m.failed != nil {
		return
	}
	m.failedAt = StageAdmit
	if err := m.target.Client.Create(ctx, newExport(m.namespace, m.service)); err != nil {
		m.failed = m.target.Errorf("create ServiceExport %s/%s: %w", m.namespace, m.service, err)
	}
}

func (m *member) create(ctx context.Context) error {
	pullSecrets, err := m.copyPullSecrets(ctx)
	if err != nil {
		return err
	}
	service := newService(m.namespace, m.service)
	for _, object := range []client.Object{newPod(m.namespace, answerOf(m.id(), m.namespace), m.agent, pullSecrets), service} {
		// A new namespace's account is made by a controller, before which a Pod is refused.
		err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			refused := m.target.Client.Create(ctx, object)
			if apierrors.IsForbidden(refused) && m.accountMissing(ctx) {
				return false, nil
			}
			return true, refused
		})
		if err != nil {
			return m.target.Errorf("create %T %s/%s: %w", object, m.namespace, object.GetName(), err)
		}
	}
	m.families = service.Spec.IPFamilies
	return nil
}

func (m *member) accountMissing(ctx context.Context) bool {
	_, err := m.target.Clientset.CoreV1().ServiceAccounts(m.namespace).Get(ctx, "default", metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// copyPullSecrets lets the temporary Pod pull the image that the agent runs.
func (m *member) copyPullSecrets(ctx context.Context) ([]corev1.LocalObjectReference, error) {
	for _, reference := range m.agent.PullSecrets {
		from, err := m.target.Clientset.CoreV1().Secrets(m.agent.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
		if err != nil {
			return nil, m.target.Errorf("read the agent's pull secret: %w", err)
		}
		to := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: from.Name}, Type: from.Type, Data: from.Data}
		if err := m.target.Client.Create(ctx, to); err != nil {
			return nil, m.target.Errorf("copy the agent's pull secret: %w", err)
		}
	}
	return m.agent.PullSecrets, nil
}

// awaitPod waits until the Pod is ready, and says otherwise what keeps it.
func (m *member) awaitPod(ctx context.Context) error {
	last := "it was not read yet"
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		ready := false
		pod, err := m.target.Clientset.CoreV1().Pods(m.namespace).Get(ctx, podName, metav1.GetOptions{})
		if err == nil {
			ready, last = describePod(pod)
		} else if ctx.Err() == nil {
			last = err.Error()
		}
		return ready, nil
	})
	if err != nil {
		return m.target.Errorf("Pod %s/%s is not ready: %s", m.namespace, podName, last)
	}
	return nil
}

func describePod(pod *corev1.Pod) (ready bool, text string) {
	text = "phase " + string(pod.Status.Phase)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return true, ""
		}
		if c.Status == corev1.ConditionFalse && c.Message != "" {
			text = c.Message
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			text = c.State.Waiting.Reason + ": " + c.State.Waiting.Message
		}
		if c.State.Terminated != nil {
			text = fmt.Sprintf("it ended with code %d: %s", c.State.Terminated.ExitCode, c.State.Terminated.Message)
		}
	}
	return false, text
}

// errNotImported is why awaitImport ends without an import.
var errNotImported = errors.New("not imported")

// awaitImport waits until this cluster imports what from exports.
func (m *member) awaitImport(ctx context.Context, from *member) error {
	last := "there is no ServiceImport"
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var found mcsv1beta1.ServiceImport
		err := m.target.Client.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: from.service}, &found)
		if err != nil {
			if !apierrors.IsNotFound(err) && ctx.Err() == nil {
				last = err.Error()
			}
			return false, nil
		}
		last = "its ServiceImport does not name cluster " + from.id()
		for _, source := range found.Status.Clusters {
			if source.Cluster != from.id() {
				continue
			}
			condition := meta.FindStatusCondition(found.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
			if condition != nil && condition.Status == metav1.ConditionTrue {
				return true, nil
			}
			last = "its ServiceImport is not ready"
			if condition != nil {
				last += ": " + condition.Reason + ": " + condition.Message
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", errNotImported, last)
	}
	return nil
}

// exportProblem says by the export's own conditions why it is not imported.
func (m *member) exportProblem(ctx context.Context) (stage Stage, text string) {
	var found mcsv1beta1.ServiceExport
	if err := m.target.Client.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: m.service}, &found); err != nil {
		return StageImport, err.Error()
	}
	for _, c := range found.Status.Conditions {
		if c.Type == "Admitted" && c.Status != metav1.ConditionTrue {
			return StageAdmit, c.Reason + ": " + c.Message
		}
	}
	for _, kind := range []string{"Valid", "Ready", "Available"} {
		if c := meta.FindStatusCondition(found.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
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
	namespaces := m.target.Clientset.CoreV1().Namespaces()
	err := namespaces.Delete(ctx, m.namespace, metav1.DeleteOptions{})
	if err == nil {
		err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			_, err := namespaces.Get(ctx, m.namespace, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
	}
	if client.IgnoreNotFound(err) != nil {
		return m.target.Errorf("delete namespace %s: %w", m.namespace, err)
	}
	return nil
}
