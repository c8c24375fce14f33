// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func TestWhichLabelsAndAnnotationsAreNotCopied(t *testing.T) {
	for key, want := range map[string]bool{
		"service.kubernetes.io/headless":                   true,
		"endpointslice.kubernetes.io/managed-by":           true,
		"multicluster.kubernetes.io/service-name":          true,
		"kubernetes.io/service-name":                       true,
		"comity.dev/tiers":                                 true,
		"namespace.comity.dev/shop":                        true,
		"app.kubernetes.io/instance":                       true,
		"app.kubernetes.io/managed-by":                     true,
		"argocd.argoproj.io/instance":                      true,
		"argocd.argoproj.io/tracking-id":                   true,
		"argocd.argoproj.io/sync-options":                  true,
		"applications.argoproj.io/app-name":                true,
		"kustomize.toolkit.fluxcd.io/name":                 true,
		"kustomize.toolkit.fluxcd.io/prune":                true,
		"helm.toolkit.fluxcd.io/namespace":                 true,
		"resourceset.fluxcd.controlplane.io/name":          true,
		"meta.helm.sh/release-name":                        true,
		"helm.sh/chart":                                    true,
		"helm.sh/hook":                                     true,
		"kubectl.kubernetes.io/last-applied-configuration": true,
		"applyset.kubernetes.io/part-of":                   true,
		"config.k8s.io/owning-inventory":                   true,
		"kapp.k14s.io/app":                                 true,
		"objectset.rio.cattle.io/hash":                     true,
		"projectsveltos.io/reference-name":                 true,

		"team":                                  false,
		"app.kubernetes.io/name":                false,
		"app.kubernetes.io/part-of":             false,
		"app.kubernetes.io/version":             false,
		"kubernetes.io/description":             false,
		"example.com/instance":                  false,
		"notargoproj.io/instance":               false,
		"argoproj.io.example.com/instance":      false,
		"example.com/argoproj.io":               false,
		"networking.istio.io/exportTo":          false,
		"topology.kubernetes.io/zone":           false,
		"multicluster.x-k8s.io/sync":            false,
		"multicluster.kubernetes.io.evil.org/x": false,
		"":                                      false,
	} {
		if got := Reserved(key); got != want {
			t.Errorf("%q is reserved: %v, want %v", key, got, want)
		}
	}
}

// docs/gitops.md has a table of them, in backquotes.
func TestTheDocumentationListsWhatIsReserved(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "gitops.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Labels that are not copied\n")
	listed := sets.New[string]()
	for line := range strings.Lines(section) {
		cell, _, isRow := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for i, part := range strings.Split(cell, "`") {
			if isRow && i%2 == 1 {
				listed.Insert(part)
			}
		}
	}
	if diff := cmp.Diff(sets.List(reservedDomains.Union(reservedKeys)), sets.List(listed)); diff != "" {
		t.Errorf("docs/gitops.md (-code +there):\n%s", diff)
	}
}

func TestUnreservedChangesNothing(t *testing.T) {
	in := map[string]string{"team": "shop", "app.kubernetes.io/instance": "billing"}
	if diff := cmp.Diff(map[string]string{"team": "shop"}, Unreserved(in)); diff != "" || len(in) != 2 {
		t.Errorf("of %v remain (-want +got):\n%s", in, diff)
	}
	if got := Unreserved(nil); got != nil {
		t.Errorf("of none remain %v", got)
	}
}

func TestWhatIsReservedOfAnExportIsNamed(t *testing.T) {
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	export.Spec.ExportedLabels = map[string]string{"team": "shop"}
	if got := ReservedOf(export); got != "" {
		t.Errorf("nothing is reserved: %s", got)
	}
	export.Spec.ExportedLabels = map[string]string{"team": "shop", "helm.sh/chart": "web", "app.kubernetes.io/instance": "web", "comity.dev/\x1b[2J": ""}
	export.Spec.ExportedAnnotations = map[string]string{"argocd.argoproj.io/tracking-id": "web:x"}
	const want = `ServiceExport shop/web, spec.exportedLabels: "app.kubernetes.io/instance", "comity.dev/\x1b[2J", "helm.sh/chart"; spec.exportedAnnotations: "argocd.argoproj.io/tracking-id": ` +
		"not exported, because Kubernetes, Comity, or a tool such as Argo CD, Flux or Helm would act on it in other clusters; remove it"
	if diff := cmp.Diff(want, ReservedOf(export)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 100 {
		export.Spec.ExportedLabels["comity.dev/"+strings.Repeat("x", len(export.Spec.ExportedLabels))] = ""
	}
	if got := ReservedOf(export); len(got) > MaxEventNote || !strings.Contains(got, "more") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
