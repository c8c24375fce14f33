// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios give into their files instead of comparing")

const (
	importFile    = "import.yaml"
	conflictsFile = "conflicts.txt"
	hereFile      = "here.yaml"
	hereResult    = "here.txt"
	kepPrefix     = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/1645-multi-cluster-services-api#"
)

// shuffles is how often the exports of each scenario are put in another order.
const shuffles = 1000

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/*.txtar: found %d files, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			checkHeader(t, archive)
			exports := readExports(t, archive)
			got := render(t, exports)
			cluster := readHere(t, archive)
			resolved, conflicts := merge.ResolveInOrder(merge.OldestFirst(exports))
			for range shuffles {
				rand.Shuffle(len(exports), func(i, j int) { exports[i], exports[j] = exports[j], exports[i] })
				again, conflictsAgain := merge.ResolveInOrder(merge.OldestFirst(exports))
				if !reflect.DeepEqual(resolved, again) || !slices.Equal(conflicts, conflictsAgain) {
					t.Fatalf("the order in which exports are read changes the result:\n%s", cmp.Diff(resolved, again))
				}
			}
			if cluster != nil {
				got += cluster.run(t, exports)
			}
			compareOrRewrite(t, file, archive, got)
		})
	}
}

// checkHeader holds every scenario to a title, a link to the rule and, on the
// third line, the items of the checklist that it shows ("design" for rules that
// are Comity's own).
func checkHeader(t *testing.T, archive *txtar.Archive) {
	t.Helper()
	lines := strings.Split(string(archive.Comment), "\n")
	if len(lines) < 3 || lines[0] == "" || !strings.HasPrefix(lines[1], kepPrefix) || len(shows(archive)) == 0 {
		t.Fatalf("the file must begin with a title; then a link that begins with %s; then %q and items", kepPrefix, checklistPrefix)
	}
}

// readExports reads the files called <cluster>.yaml. Each holds what an
// ExportRecord would; namespace, name and UID are filled in.
func readExports(t *testing.T, archive *txtar.Archive) []model.Export {
	t.Helper()
	var exports []model.Export
	for _, f := range archive.Files {
		if !isExport(f.Name) {
			continue
		}
		var spec exchangev1alpha1.ExportRecordSpec
		if err := yaml.UnmarshalStrict(f.Data, &spec); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		cluster := strings.TrimSuffix(f.Name, ".yaml")
		exports = append(exports, model.Export{
			SourceExport:      model.SourceExport{Cluster: model.ClusterID(cluster), UID: types.UID("uid-" + cluster), CreatedAt: spec.ExportedAt.Time},
			Key:               types.NamespacedName{Namespace: "default", Name: "web"},
			ServiceProperties: spec.ServiceProperties,
			Targets:           spec.Targets,
		})
	}
	return exports
}

// isExport reports whether a file of a scenario is what a cluster exports.
func isExport(name string) bool {
	return name != importFile && name != conflictsFile && name != hereFile && name != hereResult
}

// outcome is a resolved import as the files show it.
type outcome struct {
	Type                  mcsv1beta1.ServiceImportType         `json:"type"`
	Ports                 []string                             `json:"ports,omitempty"`
	IPFamilies            []corev1.IPFamily                    `json:"ipFamilies,omitempty"`
	SessionAffinity       corev1.ServiceAffinity               `json:"sessionAffinity,omitempty"`
	SessionAffinityConfig *corev1.SessionAffinityConfig        `json:"sessionAffinityConfig,omitempty"`
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
	TrafficDistribution   *string                              `json:"trafficDistribution,omitempty"`
	Labels                map[string]string                    `json:"labels,omitempty"`
	Annotations           map[string]string                    `json:"annotations,omitempty"`
	Tiers                 string                               `json:"tiers,omitempty"`
	Traffic               []string                             `json:"traffic"`
}

// render gives the two result files as one text.
func render(t *testing.T, exports []model.Export) string {
	t.Helper()
	resolved, conflicts := merge.ResolveInOrder(merge.OldestFirst(exports))
	out := outcome{
		Type: resolved.Type, Ports: showPorts(resolved.Ports), IPFamilies: resolved.IPFamilies,
		SessionAffinity: resolved.SessionAffinity, SessionAffinityConfig: resolved.SessionAffinityConfig,
		InternalTrafficPolicy: resolved.InternalTrafficPolicy, TrafficDistribution: resolved.TrafficDistribution,
		Labels: resolved.Labels, Annotations: resolved.Annotations, Tiers: resolved.Tiers,
	}
	for _, c := range resolved.Constituents {
		out.Traffic = append(out.Traffic, fmt.Sprintf("%s: %s", c.Cluster, strings.Join(showPorts(c.Ports), ", ")))
	}
	text, err := yaml.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	archive := txtar.Archive{Files: []txtar.File{{Name: importFile, Data: text}, {Name: conflictsFile}}}
	for _, c := range conflicts {
		archive.Files[1].Data = fmt.Appendf(archive.Files[1].Data, "%s: %s\n", c.Reason, c.Message)
	}
	return string(txtar.Format(&archive))
}

func showPorts(ports []mcsv1beta1.ServicePort) []string {
	var shown []string
	for _, p := range ports {
		text := fmt.Sprintf("%q %d/%s", p.Name, p.Port, p.Protocol)
		if p.AppProtocol != nil {
			text += " " + *p.AppProtocol
		}
		shown = append(shown, text)
	}
	return shown
}

func compareOrRewrite(t *testing.T, file string, archive *txtar.Archive, got string) {
	t.Helper()
	kept := &txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		if isExport(f.Name) || f.Name == hereFile {
			kept.Files = append(kept.Files, f)
		}
	}
	whole := string(txtar.Format(kept)) + got
	if *rewrite {
		if err := os.WriteFile(file, []byte(whole), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, []byte(whole)) {
		t.Errorf("%s (-file +now; go -C test test ./scenario -rewrite accepts it):\n%s", file, cmp.Diff(string(want), whole))
	}
}
