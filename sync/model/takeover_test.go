// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestAReportOfATakeoverBeginsWithWhereTheCommandIs(t *testing.T) {
	long := func(letter string) string { return strings.Repeat(letter, 50) }
	held := []Takeover{{
		Decider: SourceExport{Cluster: "b"}, By: SourceExport{Cluster: "c"},
		Fields: []string{"type", "ipFamilies"},
	}}
	key := types.NamespacedName{Namespace: long("n"), Name: long("s")}
	const quoted = 240 // what a condition about many clusters quotes of one
	got := Bound(ReportTakeovers(held, "b", ClusterID(long("a")), key), quoted)
	if want := "ServiceImport " + key.String() + " in cluster " + long("a"); !strings.Contains(got, want) {
		t.Errorf("%q is not in %s", want, got)
	}
}
