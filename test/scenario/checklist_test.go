// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

const checklistPrefix = "Checklist: "

// item is one rule of KEP-1645, in our words.
type item struct {
	number int
	rule   string
	// elsewhere is a file of tests and a piece of text in it, for a rule that no
	// scenario can show, since it is about more than a decision.
	elsewhere [2]string
}

// checklist numbers what KEP-1645 asks for or states, as far as it concerns what
// clusters decide. The numbers are those that scenarios refer to.
func checklist() []item {
	here := [2]string{}
	return []item{
		{1, "a cluster id is one RFC 1123 label", [2]string{"../envtest/agent/process_test.go", "refuses a cluster id"}},
		{3, "the cluster property names the cluster", [2]string{"../../cmd/comity/app/identity_test.go", "TestIdentity"}},
		{4, "the clusterset property is there while a member", [2]string{"../../cmd/comity/app/identity_test.go", "clusterset"}},
		{5, "an id that is missing or used twice is refused", [2]string{"../envtest/peer/peers_test.go", "a Peer with the id of this cluster"}},
		{7, "without a ServiceExport nothing is exported", here},
		{8, "deleting the ServiceExport stops exporting", here},
		{9, "NodePort and LoadBalancer are imported as ClusterSetIP", [2]string{"../../sync/exchange/record_test.go", "NodePort"}},
		{10, "ExternalName is not exported", [2]string{"../../sync/exchange/record_test.go", "ExternalName"}},
		{11, "a missing Service is told", [2]string{"../envtest/status/export_test.go", "says that the Service is missing"}},
		{12, "labels and annotations are the ServiceExport's", here},
		{13, "an import is wherever the namespace is, exporters included", here},
		{14, "the last export that goes takes the import with it", here},
		{16, "what is wrong with an import is told", here},
		{17, "clusterset IPs are stable", here},
		{18, "ipFamilies have no duplicate, and ips are in their order", here},
		{19, "a headless import has no address", here},
		{20, "endpointSliceObjects is published", [2]string{"../envtest/status/import_test.go", "follows the derived objects"}},
		{21, "the oldest export wins", here},
		{22, "a conflict is told on all exports", here},
		{23, "a new conflict leaves traffic as it is", here},
		{24, "ports are the union, and a mismatch is a conflict", here},
		{25, "no two ports share a name, or a protocol and number", here},
		{26, "a port is served only by clusters that have it", here},
		{27, "the oldest export decides about headlessness", here},
		{28, "and about session affinity and its config", here},
		{29, "and about internalTrafficPolicy and trafficDistribution", here},
		{30, "and about labels and annotations", here},
		{31, "IPFamilyConflict where traffic could reach only some", here},
		{32, "conditions of endpoints are carried as they are", here},
		{33, "a slice is of one cluster, in the import's namespace", here},
		{34, "slices are labeled with service and source cluster", here},
		{35, "managed-by names the controller", here},
		{36, "an export that ends takes its slices with it", here},
		{38, "each source cluster has a lease", here},
	}
}

// shows lists the items of the checklist that a scenario names.
func shows(archive *txtar.Archive) []string {
	lines := strings.Split(string(archive.Comment), "\n")
	if len(lines) < 3 {
		return nil
	}
	items, is := strings.CutPrefix(lines[2], checklistPrefix)
	if !is {
		return nil
	}
	return strings.Split(items, ", ")
}

// TestEveryRuleOfTheChecklistIsShownSomewhere: each by a scenario, or by the
// test of another suite that is named and exists.
func TestEveryRuleOfTheChecklistIsShownSomewhere(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, number := range shows(archive) {
			shown[number] = true
			known := slices.ContainsFunc(checklist(), func(i item) bool { return strconv.Itoa(i.number) == number })
			if !known && number != "design" {
				t.Errorf("%s names item %q, which is not on the checklist", file, number)
			}
		}
	}
	for _, i := range checklist() {
		name := fmt.Sprintf("item %d (%s)", i.number, i.rule)
		if i.elsewhere[0] == "" {
			if !shown[strconv.Itoa(i.number)] {
				t.Errorf("%s is shown by no scenario", name)
			}
			continue
		}
		if text, err := os.ReadFile(i.elsewhere[0]); err != nil || !strings.Contains(string(text), i.elsewhere[1]) {
			t.Errorf("%s should be shown by %q in %s: error %v", name, i.elsewhere[1], i.elsewhere[0], err)
		}
	}
}
