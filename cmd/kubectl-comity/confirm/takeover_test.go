// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

func TestTheExportsThatWaitAreReadFromTheCondition(t *testing.T) {
	const one, other = "0e3b1c5a-6d3f-4c44-9a51-2a6d7e0b9f10", "7f8f9c1e-0b0a-4d0d-8a52-3a6d7e0b9f11"
	for name, tc := range map[string]struct {
		message string
		want    map[model.ClusterID]types.UID
	}{
		"the annotation": {"c waits; kubectl annotate serviceimport -n shop web comity.dev/confirm-takeover=c/of-c --overwrite; x", map[model.ClusterID]types.UID{"c": "of-c"}},
		"cluster and UID": {
			"c/" + one + " and d/" + other + " wait: kubectl comity confirm takeover shop/web --from c",
			map[model.ClusterID]types.UID{"c": one, "d": other},
		},
		"a namespace and a name": {"shop/web waits; see comity.dev/exports", map[model.ClusterID]types.UID{}},
	} {
		t.Run(name, func(t *testing.T) {
			imported := &mcsv1beta1.ServiceImport{}
			imported.Status.Conditions = []metav1.Condition{condition.TakeoverHeld(tc.message)}
			if diff := cmp.Diff(tc.want, Waiting(imported)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhichExportMayDecideAfterAConfirmation(t *testing.T) {
	entry := func(id model.ClusterID, uid types.UID, absent model.SourceState) model.Entry {
		e := model.Entry{Cluster: id, UID: uid, Absent: absent}
		if absent != model.SourcePublished {
			e.Since = time.Unix(1, 0)
		}
		return e
	}
	for name, tc := range map[string]struct {
		list []model.Entry
		want types.UID
	}{
		"no list":                          {nil, ""},
		"the first is published":           {[]model.Entry{entry("b", "u", model.SourcePublished), entry("c", "v", model.SourcePublished)}, ""},
		"the first is not read":            {[]model.Entry{entry("b", "u", model.SourceNotRead), entry("c", "v", model.SourcePublished)}, "v"},
		"the first is missing":             {[]model.Entry{entry("b", "u", model.SourceMissing), entry("d", "w", model.SourcePublished), entry("c", "v", model.SourcePublished)}, "v"},
		"that of the cluster is missing":   {[]model.Entry{entry("b", "u", model.SourceNotRead), entry("c", "v", model.SourceMissing)}, ""},
		"its UID is not known":             {[]model.Entry{entry("b", "u", model.SourceNotRead), entry("c", "", model.SourcePublished)}, ""},
		"the cluster has no export":        {[]model.Entry{entry("b", "u", model.SourceNotRead)}, ""},
		"the cluster is first, and absent": {[]model.Entry{entry("c", "v", model.SourceNotRead)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			imported := &mcsv1beta1.ServiceImport{}
			if tc.list != nil {
				imported.Annotations = map[string]string{model.AnnotationList: model.List{Formed: time.Unix(1, 0), Entries: tc.list}.String()}
			}
			got, is := candidate(imported, "c")
			if is != (tc.want != "") || is && got != tc.want {
				t.Errorf("got %q, %t; want %q", got, is, tc.want)
			}
		})
	}
}
