// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// ready sums up Compiled and, if there is one, InForce: Ready has status and reason of the
// first that is not True. Beside one that is not True stands Stalled, or Reconciling if the
// policy need not change: if it could not be compiled for now, or a replica lags.
//
//	Compiled               InForce            Ready     beside it
//	False                                     False     Stalled
//	False, for now                            False     Reconciling
//	True                   False or Unknown   the same  Reconciling
//	True                   of another spec    Unknown   Reconciling
//	True                   True, or none      True
func ready(policy *v1alpha1.ExportPolicy, of []metav1.Condition, forNow bool) []metav1.Condition {
	from := of[0]
	if last := of[len(of)-1]; from.Status == metav1.ConditionTrue {
		from = last
	}
	// InForce stays as it was stored while the replicas cannot be read.
	if stored := from.ObservedGeneration; stored != 0 && stored != policy.Generation {
		from = metav1.Condition{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonReplicaUnknown, Message: "It is not known yet what the replicas enforce."}
	}
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: from.Status, Reason: from.Reason, Message: model.Bound(from.Message, model.MaxEventNote)}
	if c.Status == metav1.ConditionTrue {
		return []metav1.Condition{c}
	}
	beside := c
	beside.Type, beside.Status = v1alpha1.ConditionReconciling, metav1.ConditionTrue
	if of[0].Status == metav1.ConditionFalse && !forNow {
		beside.Type = v1alpha1.ConditionStalled
	}
	return []metav1.Condition{c, beside}
}
