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
		"kubectl comity confirm takeover shop/web --from c; " +
		"it would change type, ports (type: ClusterSetIP to Headless)"
	if first == nil || first.Message != want || first.Status != metav1.ConditionTrue {
		t.Fatalf("got %+v", first)
	}
	in.Observation.Takeovers[0].Changes = strings.Repeat("x", 5000)
	if got := held(); len(got.Message) > condition.MaxMessage {
		t.Errorf("%d bytes", len(got.Message))
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
				"tiers", "exported labels", "exported annotations", "selector", "target ports"},
			Changes: strings.Repeat("y", 300),
		}
	}
	honest := "d/7d3f0a52-0d5c-4c35-9c8e-0c2f4b7f7f10"
	held := []model.Takeover{takeover(long(63, "c"), long(128, "u")), takeover("d", honest[2:])}
	message := func() string {
		imported := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: long(63, "n"), Name: long(63, "s")}}
		status := Import(ImportInput{Import: imported, Observation: &model.Observation{Takeovers: held}}, metav1.NewTime(time.Unix(1, 0)))
		return meta.FindStatusCondition(status.Conditions, condition.TypeTakeoverHeld).Message
	}
	command := "kubectl comity confirm takeover " + long(63, "n") + "/" + long(63, "s") + " --from " + long(63, "c") + ";"
	if got := message(); !strings.Contains(got, command) || !strings.Contains(got, "another one that waits, of d;") {
		t.Errorf("got %s", got)
	}
	for i := range 20 {
		held = append(held, takeover(fmt.Sprint("e-", i), "of-e"))
	}
	if got := message(); !strings.Contains(got, command) || !strings.Contains(got, "another one that waits, of d, e-0, e-1 and 18 more;") {
		t.Errorf("got %s", got)
	}
	for i := range held[1:] {
		held[1+i] = takeover(long(63, fmt.Sprint(i)), long(128, "v"))
	}
	if got := message(); !strings.Contains(got, command) || !strings.Contains(got, "another one that waits, of "+long(63, "0")+", ") {
		t.Errorf("got %s", got)
	}
}
