// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestADrainReachesOneImportAfterTheOther(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const minutes, imports = 10, 1000
	begun := make([]int, minutes)
	for n := range imports {
		key := types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("web-", n)}
		if at := (Drain{Drained: Drained{Since: metav1.NewTime(since)}}).Begins(key); !at.IsZero() {
			t.Fatalf("at once is %s", at)
		}
		begun[(Drain{Drained: Drained{Since: metav1.NewTime(since), Over: metav1.Duration{Duration: minutes * time.Minute}}}).Begins(key).Sub(since)/time.Minute]++
	}
	for minute, count := range begun {
		if count < 70 || count > 130 {
			t.Errorf("%d of %d imports in minute %d", count, imports, minute)
		}
	}
}
