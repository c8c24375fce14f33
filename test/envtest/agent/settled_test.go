// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
)

// unsettled says what the agent of m is going to write although its queues are empty:
// it counts a replica that has ended until the next count, and evaluates policies again
// that could not be evaluated.
func (m *member) unsettled() error {
	ctx := context.Background()
	var policies policyv1alpha1.ExportPolicyList
	if err := m.client.List(ctx, &policies); err != nil {
		return err
	}
	for _, p := range policies.Items {
		c := meta.FindStatusCondition(p.Status.Conditions, policyv1alpha1.ConditionInForce)
		if c == nil || !strings.HasPrefix(c.Message, "1/1 replicas ") {
			return fmt.Errorf("%s: InForce of ExportPolicy %s is %q", m.ID(), p.Name, describe(c))
		}
	}
	var exports mcsv1beta1.ServiceExportList
	if err := m.client.List(ctx, &exports); err != nil {
		return err
	}
	for _, e := range exports.Items {
		if c := meta.FindStatusCondition(e.Status.Conditions, "Admitted"); c == nil || c.Status == metav1.ConditionUnknown {
			return fmt.Errorf("%s: Admitted of ServiceExport %s/%s is %q", m.ID(), e.Namespace, e.Name, describe(c))
		}
	}
	return nil
}

// explained are the writes of writesSince, each with its time after from and with what
// the object says now, so that a failure shows why it was written.
func explained(from time.Time) func() string {
	return func() string {
		var out strings.Builder
		for _, id := range ids {
			writes, _ := members[id].agentWrites(from)
			for _, w := range writes {
				fmt.Fprintf(&out, "%s after %s: %s %s %s/%s (%d) by %s%s\n", id, w.Time.Sub(from).Round(time.Millisecond),
					w.Verb, w.Resource, w.Namespace, w.Name, w.Code, w.User, members[id].says(w))
			}
		}
		return out.String()
	}
}

// says is the note of an event, or the conditions of an object, that was written.
func (m *member) says(w controlplane.Write) string {
	ctx, key := context.Background(), types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
	var conditions []metav1.Condition
	switch resource, _, _ := strings.Cut(w.Resource, "/status"); resource {
	case "events.k8s.io/events":
		e := &eventsv1.Event{}
		if m.client.Get(ctx, key, e) != nil {
			return ""
		}
		return fmt.Sprintf("\n\t%s %s of %s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Note)
	case "multicluster.x-k8s.io/serviceexports":
		e := export(w.Namespace, w.Name)
		_ = m.client.Get(ctx, key, e) // one that is gone says nothing
		conditions = e.Status.Conditions
	case "multicluster.x-k8s.io/serviceimports":
		i := &mcsv1beta1.ServiceImport{}
		_ = m.client.Get(ctx, key, i)
		conditions = i.Status.Conditions
	case "policy.comity.dev/exportpolicies":
		p := &policyv1alpha1.ExportPolicy{}
		_ = m.client.Get(ctx, key, p)
		conditions = p.Status.Conditions
	}
	var out strings.Builder
	for _, c := range conditions {
		fmt.Fprintf(&out, "\n\t%s=%s", c.Type, describe(&c))
	}
	return out.String()
}
