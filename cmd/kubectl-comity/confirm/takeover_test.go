// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

func TestTheExportsThatWaitAreThoseBehindAYoungerOne(t *testing.T) {
	entry := func(id model.ClusterID, age int64) model.Entry {
		return model.Entry{SourceExport: model.SourceExport{Cluster: id, UID: types.UID("of-" + id), CreatedAt: time.Unix(1000-age, 0)}}
	}
	list := model.List{Formed: time.Unix(1, 0), Entries: []model.Entry{entry("a", 1), entry("d", 0), entry("c", 9), entry("b", 1)}}
	if got := Waiting(list, nil); len(got) > 0 {
		t.Errorf("%v wait without condition TakeoverHeld", got)
	}
	held := []metav1.Condition{condition.TakeoverHeld(model.ReasonTakeoverHeld, "some wait")}
	if diff := cmp.Diff(map[model.ClusterID]types.UID{"c": "of-c", "b": "of-b"}, Waiting(list, held)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhichExportMayDecideAfterAConfirmation(t *testing.T) {
	entry := func(id model.ClusterID, uid types.UID, absent model.SourceState) model.Entry {
		e := model.Entry{SourceExport: model.SourceExport{Cluster: id, UID: uid}, Absent: absent}
		if absent != "" {
			e.Since = time.Unix(1, 0)
		}
		return e
	}
	for name, tc := range map[string]struct {
		list   []model.Entry
		want   types.UID
		thawed bool
	}{
		"no list":                          {list: nil, want: ""},
		"the import is not frozen":         {list: []model.Entry{entry("b", "u", ""), entry("c", "v", "")}, thawed: true},
		"the first is not read":            {list: []model.Entry{entry("b", "u", ""), entry("c", "v", "")}, want: "v"},
		"the first is missing":             {list: []model.Entry{entry("b", "u", model.SourceMissing), entry("d", "w", ""), entry("c", "v", "")}, want: "v"},
		"that of the cluster is missing":   {list: []model.Entry{entry("b", "u", ""), entry("c", "v", model.SourceMissing)}, want: ""},
		"its UID is not known":             {list: []model.Entry{entry("b", "u", ""), entry("c", "", "")}, want: ""},
		"the cluster has no export":        {list: []model.Entry{entry("b", "u", "")}, want: ""},
		"the cluster is first, and absent": {list: []model.Entry{entry("c", "v", model.SourceMissing)}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			imported := &mcsv1beta1.ServiceImport{}
			if tc.list != nil {
				imported.Annotations = map[string]string{model.AnnotationList: model.List{Formed: time.Unix(1, 0), Entries: tc.list}.String()}
			}
			if !tc.thawed {
				imported.Status.Conditions = []metav1.Condition{condition.Frozen(string(model.SourceNotRead), "b is not read")}
			}
			got, is := selection{}.candidate(imported, "c")
			if is != (tc.want != "") || is && got != tc.want {
				t.Errorf("got %q, %t; want %q", got, is, tc.want)
			}
		})
	}
}

// While a cluster is not read for a moment, imports that it decides are frozen, and no other
// export waits.
func TestConfirmingAllLeavesImportsThatAreOnlyFrozen(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := mcsv1beta1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	imported := func(name string, age time.Duration, c metav1.Condition) *mcsv1beta1.ServiceImport {
		formed := time.Unix(10_000, 0)
		list := model.List{Formed: formed, Entries: []model.Entry{
			{SourceExport: model.SourceExport{Cluster: "b", UID: "u", CreatedAt: formed}}, {SourceExport: model.SourceExport{Cluster: "c", UID: "v", CreatedAt: formed.Add(-age)}},
		}}
		return &mcsv1beta1.ServiceImport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{model.AnnotationList: list.String()}},
			Status:     mcsv1beta1.ServiceImportStatus{Conditions: []metav1.Condition{c}},
		}
	}
	target := &command.Target{Context: "a", Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		imported("held", time.Hour, condition.TakeoverHeld(model.ReasonTakeoverHeld, "c waits")),
		imported("frozen", 0, condition.Frozen(string(model.SourceNotRead), "b is not read")),
		imported("older", time.Hour, condition.Frozen(string(model.SourceNotRead), "b is not read")),
	).Build()}
	all, err := selection{all: true}.takeovers(t.Context(), target, "c")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"shop/held"}, all.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	one := selection{key: types.NamespacedName{Namespace: "shop", Name: "frozen"}}
	if _, err := one.takeovers(t.Context(), target, "c"); err != nil {
		t.Errorf("a frozen import that is named: %v", err)
	}
}
