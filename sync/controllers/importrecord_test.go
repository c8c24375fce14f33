// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var (
	web  = types.NamespacedName{Namespace: "shop", Name: "web"}
	noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func TestOneKeyIsWrittenOnceASecond(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	r := newImportRecordController(&base{Options: Options{Clock: clock}})
	if r.wait(web) != 0 {
		t.Error("the first write waits")
	}
	r.note(web)
	clock.Step(400 * time.Millisecond)
	if got := r.wait(web); got != 600*time.Millisecond {
		t.Errorf("waits for %s", got)
	}
	if r.wait(types.NamespacedName{Name: "other"}) != 0 {
		t.Error("another key waits")
	}
	clock.Step(600 * time.Millisecond)
	if r.wait(web) != 0 || len(r.wrote) != 0 {
		t.Error("waits for longer than a second, or forever")
	}
	r.note(web)
	clock.SetTime(noon.Add(-time.Hour))
	if r.wait(web) != 0 {
		t.Error("a clock that is set back stops reports")
	}
	for i := range 3 * maxReported {
		r.note(types.NamespacedName{Name: fmt.Sprint(i)})
		clock.Step(time.Millisecond)
	}
	if len(r.wrote) > maxReported {
		t.Errorf("remembers %d keys", len(r.wrote))
	}
}

func TestKeysOf(t *testing.T) {
	named := func(name string) *exchangev1alpha1.ImportRecord {
		return &exchangev1alpha1.ImportRecord{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	if diff := cmp.Diff([]types.NamespacedName{web}, keysOf(t.Context(), named(model.RecordName("shop", "web")))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := keysOf(t.Context(), named("odd")); got != nil {
		t.Errorf("got %v", got)
	}
}
