// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// restoredAt is the mark of a restore.
const restoredAt = "2026-06-01T11:00:00Z"

// marked has the record of an export that existed after the restore called mark; none if empty.
func marked(mark string) *exchangev1alpha1.ExportRecord {
	r := recordIn("comity-a", "u", false, noon)
	if mark != "" {
		r.Annotations = map[string]string{model.AnnotationStoreRestored: mark}
	}
	return r
}

// A hub keeps the records of exports that the restored store of their own cluster does
// not have.
func TestNothingIsWithdrawnThatARestoredStoreDoesNotHave(t *testing.T) {
	noExport := func(v *ExportView) { v.Local.Export = nil }
	noService := func(v *ExportView) { v.Local.Service = nil }
	for name, tc := range map[string]struct {
		missing  func(*ExportView)
		restore  Restore
		records  []*exchangev1alpha1.ExportRecord
		withdraw bool
		retry    bool
		says     string
	}{
		"no restore is known":                      {noExport, Restore{}, records(marked("")), true, false, ""},
		"the store was restored":                   {noExport, Restore{Mark: restoredAt}, records(marked("")), false, false, "create it again, and to withdraw the export delete it then"},
		"the ServiceExport existed since":          {noExport, Restore{Mark: restoredAt}, records(marked(restoredAt)), true, false, ""},
		"it existed after an earlier restore":      {noExport, Restore{Mark: restoredAt}, records(marked("2026-05-01T11:00:00Z")), false, false, "found at " + restoredAt},
		"one of two records could not be written":  {noExport, Restore{Mark: restoredAt}, records(marked(restoredAt), recordIn("comity-a-to-b", "u", false, noon)), true, false, ""},
		"a restore cannot be excluded":             {noExport, Restore{Problem: "the API server is down"}, records(marked("")), false, true, "the API server is down"},
		"the Service is missing since the restore": {noService, Restore{Mark: restoredAt, Exists: true}, records(marked("")), false, false, "Service shop/web was not found"},
		"the Service was deleted after it":         {noService, Restore{Mark: restoredAt}, records(marked(restoredAt)), true, false, "does not exist"},
		"the Service was deleted":                  {noService, Restore{}, records(marked("")), true, false, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			v := exported(tc.missing, func(v *ExportView) {
				v.Definition, v.Restore, v.Records = Definition{Created: noon.Add(-72 * time.Hour)}, tc.restore, tc.records
			})
			if !NeedsRestore(v) {
				t.Fatal("it is not examined whether the store was restored")
			}
			d := Export(v)
			if got := len(outcome(d)) > 0; got != tc.withdraw || d.Retry != tc.retry || !strings.Contains(d.Finding.Detail, tc.says) {
				t.Errorf("withdrawn: %v, retry: %v, says %q", got, d.Retry, d.Finding.Detail)
			}
			if pending := d.Finding.Publication == model.PublicationPending; pending == tc.withdraw {
				t.Errorf("publication %d", d.Finding.Publication)
			}
		})
	}
}

func TestARecordSaysThatTheExportExistsSinceTheRestore(t *testing.T) {
	const earlier = "2026-05-01T11:00:00Z"
	for name, tc := range map[string]struct {
		restore Restore
		record  *exchangev1alpha1.ExportRecord
		verdict decision.Verdict
		needs   bool
		want    string
		says    string
	}{
		"no restore is known":                {Restore{}, marked(""), decision.Verdict{Outcome: decision.Allowed}, false, "", ""},
		"the API server has it":              {Restore{Mark: restoredAt, Exists: true}, marked(""), decision.Verdict{Outcome: decision.Allowed}, true, restoredAt, ""},
		"only the cache has it":              {Restore{Mark: restoredAt}, marked(""), decision.Verdict{Outcome: decision.Allowed}, true, "", "is not known to have this ServiceExport since then"},
		"only the cache has it, once more":   {Restore{Mark: restoredAt}, marked(earlier), decision.Verdict{Outcome: decision.Allowed}, true, "", "is not known to have this ServiceExport since then"},
		"a restore cannot be excluded":       {Restore{Problem: "the API server is down"}, marked(""), decision.Verdict{Outcome: decision.Allowed}, false, "", "the API server is down"},
		"the record says so already":         {Restore{Mark: restoredAt}, marked(restoredAt), decision.Verdict{Outcome: decision.Allowed}, false, restoredAt, ""},
		"policies could not be evaluated":    {Restore{Mark: restoredAt}, marked(restoredAt), decision.Verdict{Problem: "deadline"}, false, restoredAt, "deadline"},
		"in a mesh, only the cache has it":   {Restore{Recent: true}, nil, decision.Verdict{Outcome: decision.Allowed}, true, "", "is not known to have this ServiceExport since then"},
		"in a mesh, the API server has it":   {Restore{Recent: true, Exists: true}, nil, decision.Verdict{Outcome: decision.Allowed}, true, "", ""},
		"in a mesh, it is still published":   {Restore{Recent: true}, marked(""), decision.Verdict{Outcome: decision.Allowed}, false, "", ""},
		"the record is that of a withdrawal": {Restore{Mark: restoredAt, Exists: true}, recordIn("comity-a", "u", true, noon), decision.Verdict{Outcome: decision.Allowed}, true, restoredAt, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := exported(func(v *ExportView) {
				v.Records, v.Restore, v.Local.Verdict = nil, tc.restore, tc.verdict
				if tc.record != nil {
					v.Records = records(tc.record)
				}
			})
			if got := NeedsExists(v); got != tc.needs {
				t.Errorf("the API server is asked: %v", got)
			}
			d := Export(v)
			if diff := cmp.Diff(tc.want, d.Plan.Annotations[model.AnnotationStoreRestored]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if stays := tc.says != ""; d.Retry != stays || !strings.Contains(d.Finding.Detail, tc.says) || stays && tc.want == "" && len(outcome(d)) > 0 {
				t.Errorf("retry %v, says %q, writes %v", d.Retry, d.Finding.Detail, outcome(d))
			}
		})
	}
}

func records(all ...*exchangev1alpha1.ExportRecord) []*exchangev1alpha1.ExportRecord { return all }
