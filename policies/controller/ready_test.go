// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReadySumsUpCompiledAndInForce(t *testing.T) {
	compiled := metav1.Condition{Type: "Compiled", Status: "True", Reason: "Compiled", Message: "used"}
	broken := metav1.Condition{Type: "Compiled", Status: "False", Reason: "CompileError", Message: "broken"}
	exhausting := metav1.Condition{Type: "Compiled", Status: "False", Reason: "ResourceExhausted", Message: "too much"}
	inForce := func(status metav1.ConditionStatus, reason string, generation int64) metav1.Condition {
		return metav1.Condition{Type: "InForce", Status: status, Reason: reason, Message: "replicas", ObservedGeneration: generation}
	}
	for name, c := range map[string]struct {
		of     []metav1.Condition
		forNow bool
		want   []string
	}{
		"it does not compile":                    {of: []metav1.Condition{broken, inForce("False", "NotCompiled", 0)}, want: []string{"Ready False CompileError: broken", "Stalled True CompileError: broken"}},
		"it is in quarantine":                    {of: []metav1.Condition{exhausting, inForce("False", "NotCompiled", 0)}, want: []string{"Ready False ResourceExhausted: too much", "Stalled True ResourceExhausted: too much"}},
		"it could not be compiled for now":       {of: []metav1.Condition{broken, inForce("False", "NotCompiled", 0)}, forNow: true, want: []string{"Ready False CompileError: broken", "Reconciling True CompileError: broken"}},
		"a replica lags":                         {of: []metav1.Condition{compiled, inForce("False", "ReplicaLags", 0)}, want: []string{"Ready False ReplicaLags: replicas", "Reconciling True ReplicaLags: replicas"}},
		"the replicas are not known":             {of: []metav1.Condition{compiled, inForce("Unknown", "ReplicaUnknown", 0)}, want: []string{"Ready Unknown ReplicaUnknown: replicas", "Reconciling True ReplicaUnknown: replicas"}},
		"it is in force":                         {of: []metav1.Condition{compiled, inForce("True", "EveryReplica", 0)}, want: []string{"Ready True EveryReplica: replicas"}},
		"it was in force, and is not known now":  {of: []metav1.Condition{compiled, inForce("True", "EveryReplica", 2)}, want: []string{"Ready True EveryReplica: replicas"}},
		"the one before the change was in force": {of: []metav1.Condition{compiled, inForce("True", "EveryReplica", 1)}, want: []string{"Ready Unknown ReplicaUnknown: It is not known yet what the replicas enforce.", "Reconciling True ReplicaUnknown: It is not known yet what the replicas enforce."}},
		"no replica states what it enforces":     {of: []metav1.Condition{compiled}, want: []string{"Ready True Compiled: used"}},
	} {
		var got []string
		for _, c := range ready(2, c.of, c.forNow) {
			got = append(got, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
