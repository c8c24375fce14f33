// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// managed is the metadata of an object that Comity applied.
func managed(name string, others ...metav1.ManagedFieldsEntry) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: web.Namespace, Name: name, ResourceVersion: "7",
		ManagedFields: append([]metav1.ManagedFieldsEntry{{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply}}, others...),
	}
}

func edited(by string, at time.Time) metav1.ManagedFieldsEntry {
	when := metav1.NewTime(at)
	return metav1.ManagedFieldsEntry{Manager: by, Operation: metav1.ManagedFieldsOperationUpdate, Time: &when}
}

func derivedService(meta metav1.ObjectMeta) *corev1.Service {
	return &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta}
}

func TestWhoChangedAnObjectIsWhoDidItLast(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	status := edited("kube-controller-manager", noon.Add(time.Hour))
	status.Subresource = "status"
	service := derivedService(managed("derived-1", edited("kubectl-edit", noon), edited("argocd", noon.Add(time.Minute)), status))
	version, by := lastChange(plan.Current{Services: []*corev1.Service{service}}, driftObject{kind: "Service", name: "derived-1"})
	if version != "7" || by != "argocd" {
		t.Errorf("got version %q by %q", version, by)
	}
	if version, by := lastChange(plan.Current{}, driftObject{kind: "ServiceImport", name: "web"}); version != "" || by != "" {
		t.Errorf("an object that is not there has version %q by %q", version, by)
	}
}

func TestAContestedObjectIsLeftAloneAndNamed(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := newDriftLimiter(clocktesting.NewFakeClock(now), 10*time.Second)
	desired, other := derivedService(metav1.ObjectMeta{Name: "derived-1"}), derivedService(metav1.ObjectMeta{Name: "derived-2"})
	actions := []plan.Action{{Verb: plan.Update, Object: desired}, {Verb: plan.Create, Object: other}}
	rounds := 0
	for ; len(l.allowed(web, actions)) == 2 && rounds < 100; rounds++ {
		service := derivedService(managed("derived-1", edited("argocd", now)))
		service.ResourceVersion = fmt.Sprint(rounds)
		in := plan.ImportInput{Key: web, Current: plan.Current{Services: []*corev1.Service{service}}}
		l.applied(&in, actions, []plan.Object{desired}) // the second failed
	}
	if rounds != 1+driftLimit {
		t.Errorf("answered %d times, want once and %d times more", rounds, driftLimit)
	}
	if left := l.allowed(web, actions); len(left) != 1 || left[0].Object != plan.Object(other) {
		t.Errorf("got actions %v, want the other one alone", left)
	}
	contested, again := l.contested(web)
	if diff := cmp.Diff([]model.Problem{{Reason: "Contested", Message: "Service shop/derived-1 is repeatedly changed by field manager \"argocd\", so Comity corrects it less often; let only Comity write to it"}}, contested); diff != "" || again <= 0 {
		t.Fatalf("again in %v, contested (-want +got):\n%s", again, diff)
	}
	anew := derivedService(metav1.ObjectMeta{Name: "derived-1", Labels: map[string]string{"new": "label"}})
	actions[0].Object = anew
	if len(l.allowed(web, actions)) != 2 {
		t.Error("what is wanted anew has to wait")
	}
}

func TestAnObstacleIsAnnouncedOnce(t *testing.T) {
	recorder := events.NewFakeRecorder(10)
	i := &importController{base: &base{recorder: recorder}}
	told := func() (out []string) {
		for {
			select {
			case e := <-recorder.Events:
				out = append(out, e)
			default:
				return out
			}
		}
	}
	taken := []model.Problem{{Reason: model.ReasonNameTaken, Message: "Service shop/derived-1 is in the way"}}
	theirs := plan.Current{Services: []*corev1.Service{derivedService(metav1.ObjectMeta{Name: "derived-1"})}}
	i.announce(web, theirs, nil, taken)
	i.announce(web, theirs, taken, taken)
	if diff := cmp.Diff([]string{"Warning NameTaken Service shop/derived-1 is in the way"}, told()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	i.announce(web, theirs, taken, nil)
	if i.announce(web, theirs, nil, taken); len(told()) != 1 {
		t.Error("not told once more after it was gone")
	}
	stands := theirs
	stands.Import = &mcsv1beta1.ServiceImport{ObjectMeta: managed("web")}
	if i.announce(web, stands, nil, taken); len(told()) != 0 {
		t.Error("told beside a ServiceImport of ours, whose condition says it")
	}
	foreign := []model.Problem{{Reason: model.ReasonForeignImport, Message: "ServiceImport shop/web is in the way"}}
	if i.announce(web, plan.Current{Import: &mcsv1beta1.ServiceImport{}}, nil, foreign); len(told()) != 1 {
		t.Error("a foreign ServiceImport is not told of")
	}
}
