// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package gitops

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// generation is that of every object.
const generation = 2

// now and before are a condition, whose message is its type, of this and of the generation before.
func now(typ string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: typ, ObservedGeneration: generation}
}

func before(typ string, status metav1.ConditionStatus, reason string) metav1.Condition {
	c := now(typ, status, reason)
	c.ObservedGeneration--
	return c
}

// of is a list of conditions.
func of(c ...metav1.Condition) []metav1.Condition { return c }

const (
	yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	waiting          = "Waiting for Comity"
)

var (
	policyKind = policyv1alpha1.GroupVersion.WithKind("ExportPolicy")
	exportKind = schema.GroupVersion(mcsv1beta1.GroupVersion).WithKind("ServiceExport")
	importKind = schema.GroupVersion(mcsv1beta1.GroupVersion).WithKind("ServiceImport")
	peerKind   = exchangev1alpha1.GroupVersion.WithKind("Peer")
)

// stored is an object as an API server gives it; without status if there are no conditions.
func stored(t *testing.T, kind schema.GroupVersionKind, removed bool, conditions []metav1.Condition) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	o.SetGroupVersionKind(kind)
	o.SetName("web")
	o.SetGeneration(generation)
	if removed {
		o.Object["spec"] = map[string]any{"removed": true}
	}
	content := map[string]any{}
	if kind == policyKind {
		content["observedGeneration"] = int64(-1) // the default
	}
	if conditions != nil {
		list := []any{}
		for _, c := range conditions {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, fields)
		}
		content["conditions"] = list
		if kind == policyKind {
			content["observedGeneration"] = conditions[0].ObservedGeneration
		}
	}
	if len(content) > 0 {
		o.Object["status"] = content
	}
	return o
}

func TestTheHealthOfObjects(t *testing.T) {
	const healthy, progressing, degraded = "Healthy Current", "Progressing InProgress", "Degraded Failed"
	exported, valid, admitted := now("Ready", yes, condition.ReasonExported), now("Valid", yes, condition.ReasonValid), now("Admitted", yes, condition.ReasonAdmitted)
	accepted, connected := now("Accepted", yes, "Accepted"), now("Connected", yes, "Connected")
	for _, c := range []struct {
		name       string
		kind       schema.GroupVersionKind
		removed    bool
		conditions []metav1.Condition
		want       string
		message    string
	}{
		{"a policy that was just created", policyKind, false, nil, progressing, waiting},
		{"a policy that was just changed", policyKind, false, of(before("Ready", yes, "EveryReplica")), progressing, waiting},
		{"a policy that was broken and is fixed", policyKind, false, of(before("Ready", no, "CompileError"), before("Stalled", yes, "CompileError")), progressing, waiting},
		{"a policy that a replica does not enforce yet", policyKind, false, of(now("Ready", no, "ReplicaLags"), now("Reconciling", yes, "ReplicaLags")), progressing, "Ready"},
		{"a policy that does not compile", policyKind, false, of(now("Ready", no, "CompileError"), now("Stalled", yes, "CompileError")), degraded, "Stalled"},
		{"a policy in force", policyKind, false, of(now("Ready", yes, "EveryReplica")), healthy, "Ready"},
		{"a policy that an export makes fail", policyKind, false, of(now("Ready", yes, "EveryReplica"), now("Evaluated", no, "EvaluationFailed")), healthy, "Ready"},

		{"an export that was just created", exportKind, false, nil, "Progressing Unknown", waiting},
		{"an export without a Service", exportKind, false, of(now("Valid", no, condition.ReasonNoService), admitted, now("Ready", no, model.ReasonPending)), progressing, "Valid"},
		{"an export that is not published yet", exportKind, false, of(valid, admitted, now("Ready", no, model.ReasonPending)), progressing, "Ready"},
		{"an export that could not be evaluated", exportKind, false, of(valid, now("Admitted", unknown, model.ReasonNotEvaluated), now("Ready", no, model.ReasonPending)), progressing, "Ready"},
		{"an export that was changed", exportKind, false, of(before("Admitted", no, model.ReasonPolicyDenied), before("Ready", no, condition.ReasonFailed)), progressing, waiting},
		{"an export of an ExternalName Service", exportKind, false, of(now("Valid", no, condition.ReasonInvalidServiceType), admitted, now("Ready", no, condition.ReasonFailed)), degraded, "Valid"},
		{"an export that a policy denies", exportKind, false, of(valid, now("Admitted", no, model.ReasonPolicyDenied), now("Ready", no, condition.ReasonFailed)), degraded, "Admitted"},
		{"an export that will be withdrawn", exportKind, false, of(valid, now("Admitted", no, model.ReasonPolicyDenied), exported), degraded, "Admitted"},
		{"an export that cannot be published", exportKind, false, of(valid, admitted, now("Ready", no, condition.ReasonFailed)), degraded, "Ready"},
		{"an export that is published", exportKind, false, of(valid, admitted, exported, now("Conflict", no, "NoConflicts"), now("Available", yes, "Imported")), healthy, "Ready"},
		{"an export of another implementation, which says no generation", exportKind, false, of(metav1.Condition{Type: "Ready", Status: yes, Reason: "Ready", Message: "Ready"}), healthy, "Ready"},
		{"an export that conflicts with another cluster's", exportKind, false, of(valid, admitted, exported, now("Conflict", yes, "PortConflict"), now("Available", no, model.ReasonNamespaceMissing)), healthy, "Conflict"},
		{"an export that another cluster does not import", exportKind, false, of(valid, admitted, exported, now("Available", no, model.ReasonNamespaceMissing)), healthy, "Available"},

		{"an import that was just created", importKind, false, nil, "Progressing Unknown", waiting},
		{"an import without an address yet", importKind, false, of(now("Ready", no, model.ReasonPending)), progressing, "Ready"},
		{"an import whose Service is replaced", importKind, false, of(now("Ready", no, model.ReasonTypeChanged)), progressing, "Ready"},
		{"an import whose name is taken", importKind, false, of(now("Ready", no, model.ReasonNameTaken)), degraded, "Ready"},
		{"an import", importKind, false, of(now("Ready", yes, "Ready")), healthy, "Ready"},
		{"an import of a lost cluster", importKind, false, of(now("Ready", yes, "Ready"), now("Available", no, "Lost")), healthy, "Ready"},

		{"a Peer that was just created", peerKind, false, nil, "Progressing Unknown", waiting},
		{"a Peer without a credential", peerKind, false, of(now("Accepted", no, members.ReasonSecretMissing), now("Connected", no, members.ReasonSecretMissing)), progressing, "Accepted"},
		{"a Peer that is being connected to", peerKind, false, of(accepted, now("Connected", unknown, members.ReasonConnecting)), progressing, "Connected"},
		{"a Peer in which no agent runs yet", peerKind, false, of(accepted, now("Connected", no, remote.ReasonUnreachable)), progressing, "Connected"},
		{"a Peer that was changed", peerKind, false, of(before("Accepted", no, members.ReasonWrongClusterSet), before("Connected", no, members.ReasonWrongClusterSet)), progressing, waiting},
		{"a Peer that is refused", peerKind, false, of(now("Accepted", no, members.ReasonWrongClusterSet), now("Connected", no, members.ReasonWrongClusterSet)), degraded, "Accepted"},
		{"a Peer that is read with its earlier credential", peerKind, false, of(now("Accepted", no, remote.ReasonUnreachable), connected), degraded, "Accepted"},
		{"a Peer that is lost", peerKind, false, of(accepted, now("Connected", no, condition.ReasonLost)), degraded, "Connected"},
		{"a Peer without a heartbeat", peerKind, false, of(accepted, now("Connected", no, condition.ReasonLost)), degraded, "Connected"},
		{"a Peer", peerKind, false, of(accepted, connected, now("Complete", no, model.ReasonMissing)), healthy, "Connected"},
		{"a Peer whose removal was just stated", peerKind, true, of(before("Accepted", no, members.ReasonWrongClusterSet)), progressing, waiting},
		{"a Peer that is being removed", peerKind, true, of(now("Removed", no, members.ReasonRemoving)), progressing, "Removed"},
		{"a Peer that was removed", peerKind, true, of(now("Removed", yes, "Removed")), healthy, "Removed: the Peer can be deleted from Git"},
	} {
		health, err := Of(stored(t, c.kind, c.removed, c.conditions))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want+": "+c.message, fmt.Sprintf("%s %s: %s", health.Argo, health.Flux, health.Message)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if c.kind == policyKind && !strings.HasSuffix(c.want, " "+string(health.KStatus)) {
			t.Errorf("%s: kstatus says %s, want %s", c.name, health.KStatus, c.want)
		}
		if string(health.KStatus) == "Failed" && !strings.HasSuffix(c.want, "Failed") {
			t.Errorf("%s: kstatus says that it failed", c.name)
		}
	}
}
