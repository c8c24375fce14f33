// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

func boundable(change func(*exchangev1alpha1.ExportRecord)) *exchangev1alpha1.ExportRecord {
	record := &exchangev1alpha1.ExportRecord{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "comity-b", Name: model.RecordName("shop", "web"), ResourceVersion: "7", CreationTimestamp: metav1.Unix(5, 0),
			Annotations: map[string]string{"a": strings.Repeat("x", 1000)}, Labels: map[string]string{"l": "x"}, OwnerReferences: make([]metav1.OwnerReference, 1000),
		},
		Spec: exchangev1alpha1.ExportRecordSpec{
			Service:           exchangev1alpha1.ServiceReference{Namespace: "shop", Name: "web"},
			ExportUID:         "uid",
			ExportedAt:        metav1.Unix(1600000000, 0),
			ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}}},
			Slices:            []string{"web-1"},
		},
	}
	change(record)
	return record
}

// FAULT 31: what is kept of a record is small unless it is valid, and it is refused for
// the same reason as before.
func TestFault31OfAnInvalidRecordOnlyTheReasonIsKept(t *testing.T) {
	for name, change := range map[string]func(*exchangev1alpha1.ExportRecord){
		"valid":              func(*exchangev1alpha1.ExportRecord) {},
		"empty ports":        func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports = make([]mcsv1beta1.ServicePort, 1000) },
		"too many ports":     func(r *exchangev1alpha1.ExportRecord) { r.Spec.Ports = make([]mcsv1beta1.ServicePort, 500_000) },
		"too many targets":   func(r *exchangev1alpha1.ExportRecord) { r.Spec.Targets = make([]model.Target, 500_000) },
		"too many slices":    func(r *exchangev1alpha1.ExportRecord) { r.Spec.Slices = make([]string, 500_000) },
		"a long UID":         func(r *exchangev1alpha1.ExportRecord) { r.Spec.ExportUID = "x y" },
		"another Service":    func(r *exchangev1alpha1.ExportRecord) { r.Spec.Service.Name = "db" },
		"an unknown type":    func(r *exchangev1alpha1.ExportRecord) { r.Spec.Type = "Other" },
		"a forged reduction": func(r *exchangev1alpha1.ExportRecord) { r.Spec.Type = invalidType },
		"a withdrawal": func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.Withdrawn, r.Spec.Ports = true, make([]mcsv1beta1.ServicePort, 500_000)
		},
		"a suspended one": func(r *exchangev1alpha1.ExportRecord) {
			r.Spec.Withdrawn, r.Spec.Suspended, r.Spec.Narrowed, r.Spec.ExportVersion = true, true, true, strings.Repeat("9", 500_000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			record := boundable(change)
			bound := BoundRecord(record)
			export, err := FromRecord("b", record)
			boundExport, boundErr := FromRecord("b", bound)
			if diff := cmp.Diff(export, boundExport); diff != "" || (err == nil) != (boundErr == nil) || err != nil && err.Error() != boundErr.Error() {
				t.Errorf("read: %v, not %v %s", boundErr, err, diff)
			}
			if diff := cmp.Diff(Refusal(record), Refusal(bound)); diff != "" {
				t.Errorf("refused: %s", diff)
			}
			if diff := cmp.Diff(Withdrawals("b", record), Withdrawals("b", bound)); diff != "" {
				t.Errorf("withdrawn: %s", diff)
			}
			if data, _ := json.Marshal(bound); len(data) > 1000 {
				t.Errorf("%d bytes are kept", len(data))
			}
			if bound.Name != record.Name || bound.ResourceVersion != "7" || bound.CreationTimestamp != record.CreationTimestamp {
				t.Errorf("metadata: %+v", bound.ObjectMeta)
			}
		})
	}
}

// A peer may not choose what is reported of its record.
func TestTheReasonOfAReducedRecordIsNotThePeers(t *testing.T) {
	record := boundable(func(r *exchangev1alpha1.ExportRecord) {
		r.Spec.Type, r.Annotations = invalidType, map[string]string{model.AnnotationInvalidRecord: "evil\nevil"}
	})
	if refusal := Refusal(BoundRecord(record)); refusal == nil || refusal.Field != "spec.type" {
		t.Errorf("refused: %+v", refusal)
	}
}
