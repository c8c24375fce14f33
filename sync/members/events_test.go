// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/comity-mcs/comity/sync/model"
)

func secretOf(id string, uid types.UID) corev1.Secret {
	return corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "comity-system", Name: "peer-" + string(uid), UID: uid,
		Labels: map[string]string{model.LabelClusterID: id, model.LabelClusterSet: "prod"},
	}}
}

// reportAll judges Secrets as the reconciler does.
func reportAll(s *Set, secrets ...corev1.Secret) {
	refusals := assign(secrets, "a", "prod", formerly{}).refusals
	present := map[types.UID]bool{}
	for _, secret := range secrets {
		present[secret.UID] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report(present, refusals)
}

func TestOnlyTheLeaderTellsAndNothingIsLost(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	s := New(Options{Self: "a", ClusterSet: "prod", Recorder: recorder, Log: logr.Discard()})
	own, dotted, gone := secretOf("a", "1"), secretOf("b.c", "2"), secretOf("B", "3")
	reportAll(s, own, dotted, gone)
	reportAll(s, own, dotted) // one was deleted before anybody led
	if len(recorder.Events) > 0 {
		t.Fatalf("a replica that does not lead told %q", <-recorder.Events)
	}

	s.becomeLeader()
	reportAll(s, own, dotted)
	reportAll(s, own)
	var told []string
	for len(recorder.Events) > 0 {
		told = append(told, firstWords(<-recorder.Events))
	}
	want := []string{"Warning " + ReasonOwnClusterID, "Warning " + ReasonInvalidClusterID}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// firstWords are kind and reason of an event of the fake recorder.
func firstWords(event string) string {
	n := 0
	for i, r := range event {
		if r == ' ' {
			if n++; n == 2 {
				return event[:i]
			}
		}
	}
	return event
}
