// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/randfill"
)

func TestOfAnExportOnlyTheManagedFieldsAreNotRead(t *testing.T) {
	for seed := range int64(50) {
		var want, got mcsv1beta1.ServiceExport
		randfill.NewWithSeed(seed).NilChance(0.2).NumElements(1, 3).Funcs(
			func(t *metav1.Time, c randfill.Continue) { t.Time = time.Unix(c.Int63n(1e10), 0) },
			func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString(`{"f:metadata":{}}`) },
		).Fill(&want)
		raw, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.ManagedFields) != 0 {
			t.Error("the managedFields were read")
		}
		// What is omitted is empty again, whichever way it was.
		want.ManagedFields = nil
		given, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = json.Marshal(want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(raw), string(given)); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}
