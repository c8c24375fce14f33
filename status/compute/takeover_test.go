// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

func TestTakeoverHeldSaysWhoWouldChangeWhatAndHowToConfirm(t *testing.T) {
	created := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	imported := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	imported.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "a"}}
	in := ImportInput{Import: imported, Observation: &model.Observation{Takeovers: []model.Takeover{{
		Decider: model.SourceExport{Cluster: "a", UID: "of-a", CreatedAt: created.AddDate(5, 0, 0)},
		By:      model.SourceExport{Cluster: "c", UID: "of-c", CreatedAt: created}, Fields: []string{"type", "ports"}, Changes: "type: ClusterSetIP to Headless",
	}}}}
	held := func() *metav1.Condition {
		status := Import(in, metav1.NewTime(created))
		return meta.FindStatusCondition(status.Conditions, condition.TypeTakeoverHeld)
	}
	first := held()
	const want = "the export of cluster c (created 2020-01-01T00:00:00Z) is older than the one of cluster a (created 2025-01-01T00:00:00Z), " +
		"and does not decide until an administrator confirms it: " +
		"kubectl annotate serviceimport -n shop web comity.dev/confirm-takeover=c/of-c --overwrite; " +
		"it would change type, ports (type: ClusterSetIP to Headless)"
	if first == nil || first.Message != want || first.Status != metav1.ConditionTrue {
		t.Fatalf("got %+v", first)
	}
	in.Observation.Takeovers[0].Changes = strings.Repeat("x", 5000)
	if got := held(); len(got.Message) > condition.MaxMessage {
		t.Errorf("%d bytes", len(got.Message))
	}
	// After a restart the members are read one by one: it is not cleared before.
	imported.Status.Conditions = []metav1.Condition{*first}
	in.Observation = &model.Observation{Unsynced: []model.ClusterID{"a"}, Kept: []model.ClusterID{"a"}}
	if got := held(); got == nil || *got != *first {
		t.Errorf("while a was not read: %+v", got)
	}
	in.Observation = &model.Observation{Held: []model.Hold{{Cluster: "a"}}, Kept: []model.ClusterID{"a"}}
	if got := held(); got == nil || *got != *first {
		t.Errorf("while the export of a is held: %+v", got)
	}
	in.Observation = &model.Observation{Kept: []model.ClusterID{"b"}}
	if got := held(); got != nil {
		t.Errorf("while b, which does not contribute, is kept: %+v", got)
	}
	in.Observation = nil
	if got := held(); got == nil || *got != *first {
		t.Errorf("before the first result: %+v", got)
	}
	in.Observation = &model.Observation{}
	if got := held(); got != nil {
		t.Errorf("it stays: %+v", got)
	}
}

// What is held stays as long as the record is missing, and a process that starts
// finds it missing again: no time in the condition changes.
func TestARestartDoesNotRewriteDeletionHeld(t *testing.T) {
	old := condition.DeletionHeld("an export of cluster b is missing, and what was imported from it is kept (since 2026-11-21T10:02:11Z): its record was lost")
	imported := &mcsv1beta1.ServiceImport{}
	imported.Status.Conditions = []metav1.Condition{old}
	in := ImportInput{Import: imported, Observation: &model.Observation{Held: []model.Hold{
		{Cluster: "b", Since: time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC), Message: "its record was lost"},
	}}}
	got := held(in)
	if len(got) != 1 || got[0].Message != old.Message {
		t.Errorf("got %+v", got)
	}
	in.Observation.Held[0].Message = "another cause"
	if got := held(in); len(got) != 1 || !strings.Contains(got[0].Message, "another cause") || strings.Contains(got[0].Message, "until") {
		t.Errorf("got %+v", got)
	}
}

// A member that claims to be the oldest must hide neither how to confirm nor who else
// waits, whatever names and properties it chooses.
func TestNothingCutsTheConfirmationsOfTakeovers(t *testing.T) {
	long := func(n int, end string) string { return strings.Repeat("x", n-len(end)) + end }
	takeover := func(cluster, uid string) model.Takeover {
		return model.Takeover{
			Decider: model.SourceExport{Cluster: model.ClusterID(long(63, "a"))}, By: model.SourceExport{Cluster: model.ClusterID(cluster), UID: types.UID(uid)},
			Fields: []string{"type", "ports", "ipFamilies", "sessionAffinity", "session affinity timeout", "internalTrafficPolicy", "trafficDistribution",
				"preference for local endpoints", "exported labels", "exported annotations", "selector", "target ports"},
			Changes: strings.Repeat("y", 300), Until: time.Unix(1, 0),
		}
	}
	honest := "d/7d3f0a52-0d5c-4c35-9c8e-0c2f4b7f7f10"
	held := []model.Takeover{takeover(long(63, "c"), long(128, "u")), takeover("d", honest[2:])}
	message := func() string {
		imported := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: long(63, "n"), Name: long(63, "s")}}
		status := Import(ImportInput{Import: imported, Observation: &model.Observation{Takeovers: held}}, metav1.NewTime(time.Unix(1, 0)))
		return meta.FindStatusCondition(status.Conditions, condition.TypeTakeoverHeld).Message
	}
	command := "kubectl annotate serviceimport -n " + long(63, "n") + " " + long(63, "s") + " comity.dev/confirm-takeover=" + long(63, "c") + "/" + long(128, "u") + " --overwrite;"
	if got := message(); !strings.Contains(got, command) || !strings.Contains(got, honest) {
		t.Errorf("got %s", got)
	}
	for i := range 20 {
		held = append(held, takeover(fmt.Sprint("e-", i), "of-e"))
	}
	if got := message(); !strings.Contains(got, command) || !strings.Contains(got, honest+", e-0/of-e, e-1/of-e, e-2/of-e, e-3/of-e and 16 more;") {
		t.Errorf("got %s", got)
	}
	for i := range held[1:] {
		held[1+i] = takeover(long(63, fmt.Sprint(i)), long(128, "v"))
	}
	if got := message(); !strings.Contains(got, command) || !strings.Contains(got, long(63, "0")+"/"+long(128, "v")+" and 20 more;") {
		t.Errorf("got %s", got)
	}
}
