// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// FAULT 48: while a member is unreadable for weeks, the statements for it are bounded.
func TestFault48TheOldestStatementsBeyondTheBoundAreFound(t *testing.T) {
	noon := time.Unix(1_800_000_000, 0)
	clock := clocktesting.NewFakeClock(noon)
	statement := func(n int, suspended bool) *exchangev1alpha1.ExportRecord {
		return &exchangev1alpha1.ExportRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: fmt.Sprintf("s-%05d.shop", n)},
			Spec: exchangev1alpha1.ExportRecordSpec{
				Withdrawn: true, Suspended: suspended, WithdrawnAt: &metav1.Time{Time: noon.Add(time.Duration(n/2) * time.Second)},
			},
		}
	}
	const surplus = 3
	var all []client.Object
	for n := range decide.MaxEnded + surplus {
		all = append(all, statement(n, false))
	}
	all = append(all, statement(decide.MaxEnded+surplus, true)) // which is never too many
	read := fake.NewClientBuilder().WithScheme(inHubScheme(t)).WithObjects(all...).Build()
	b := &base{Options: Options{Clock: clock, Exchange: &Exchange{Client: read}}}
	first, err := b.firstStatement(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range decide.MaxEnded + surplus {
		if beyond := decide.StatementOrder(statement(n, false)) < first; beyond != (n < surplus) {
			t.Fatalf("statement %d is too many: %v", n, beyond)
		}
	}
	if err := read.Delete(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	if again, err := b.firstStatement(t.Context()); err != nil || again != first {
		t.Errorf("counted again within a minute: %s, error %v", again, err)
	}
	clock.SetTime(noon.Add(time.Minute))
	if err := read.DeleteAllOf(t.Context(), &exchangev1alpha1.ExportRecord{}, client.InNamespace("comity-a")); err != nil {
		t.Fatal(err)
	}
	if none, err := b.firstStatement(t.Context()); err != nil || none != "" {
		t.Errorf("without any statement: %s, error %v", none, err)
	}
}
