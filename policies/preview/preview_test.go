// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package preview_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/preview"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// shelf has exports of which the names are given, in this order, all published. before
// is called before the facts about each are read.
type shelf struct {
	names  []string
	before func(name string) error
	dying  string
}

func (s shelf) Exports(context.Context) (out []mcsv1beta1.ServiceExport, err error) {
	for _, name := range s.names {
		export := mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		if name == s.dying {
			export.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		out = append(out, export)
	}
	return out, nil
}

func (s shelf) Input(_ context.Context, audit decision.Input) (decision.Input, error) {
	if s.before != nil {
		if err := s.before(audit.Object.Name); err != nil {
			return decision.Input{}, err
		}
	}
	return decision.Input{Operation: decision.Audit, Object: audit.Object, Published: true}, nil
}

// denying is the change that adds policy p, which denies if the body holds.
func denying(t *testing.T, body string) engine.Change {
	t.Helper()
	e := engine.New(engine.Options{Timeout: time.Minute})
	e.Load(nil)
	change, err := e.Change(engine.Policy{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "package comity.policies.p\n\ndeny contains {\"msg\": \"no\"} if " + body + "\n"}})
	if err != nil {
		t.Fatal(err)
	}
	return change
}

func TestAPreviewIsSortedAndLeavesOutWhatIsBeingDeleted(t *testing.T) {
	report, err := preview.Run(t.Context(), denying(t, `input.object.metadata.name != "b"`), shelf{names: []string{"d", "c", "b", "a"}, dying: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"[p] would withdraw 2 of 3 exports: shop/a, shop/d"}, report.Warnings("p")); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestAPreviewEndsWithItsTimeAndSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stored := shelf{names: []string{"a", "b", "c", "d"}, before: func(name string) error {
		if name == "c" {
			cancel()
		}
		return nil
	}}
	report, err := preview.Run(ctx, denying(t, "true"), stored)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"[p] would withdraw 2 of 2 exports: shop/a, shop/b", "[p] looked at 2 of 4 exports, then the time for a preview was over"}
	if diff := cmp.Diff(want, report.Warnings("p")); diff != "" || report.Exports.Complete() {
		t.Errorf("complete %v, warnings (-want +got):\n%s", report.Exports.Complete(), diff)
	}
}

func TestWhatCannotBeReadIsCounted(t *testing.T) {
	stored := shelf{names: []string{"a", "b"}, before: func(name string) error {
		if name == "a" {
			return errors.New("namespace shop is not known")
		}
		return nil
	}}
	report, err := preview.Run(t.Context(), denying(t, "true"), stored)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"[p] would withdraw 1 of 2 exports: shop/b", "[p] 1 of 2 exports could not be read: namespace shop is not known"}
	if diff := cmp.Diff(want, report.Warnings("p")); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func (shelf) Imports(context.Context) ([]decision.ImportInput, error) { return nil, nil }

type noShelf struct{ shelf }

func (noShelf) Exports(context.Context) ([]mcsv1beta1.ServiceExport, error) {
	return nil, errors.New("forbidden")
}

func TestExportsThatCannotBeListedAreAnError(t *testing.T) {
	if _, err := preview.Run(t.Context(), denying(t, "true"), noShelf{}); err == nil || !strings.Contains(err.Error(), "list the ServiceExports: forbidden") {
		t.Errorf("got %v", err)
	}
}

// importing has imports from b, which is imported, and from c, which is not.
type importing struct{ shelf }

func (importing) Imports(context.Context) ([]decision.ImportInput, error) {
	in := decision.ImportInput{Cluster: "a", Source: decision.ImportSource{Cluster: "c"}, Export: decision.ImportedExport{Namespace: "shop", Name: "web"}}
	imported := in
	imported.Source.Cluster, imported.Imported = "b", true
	return []decision.ImportInput{in, imported}, nil
}

func TestAPreviewOfAnImportPolicy(t *testing.T) {
	for name, tc := range map[string]struct {
		existing v1alpha1.Existing
		body     string
		want     []string
	}{
		"it denies":                  {v1alpha1.Withdraw, "true", []string{"[p] would withdraw 1 of 2 imports: shop/web from b", "[p] would deny 1 of 2 imports: shop/web from c"}},
		"it keeps what is there":     {v1alpha1.Keep, "true", []string{"[p] would deny 1 of 2 imports: shop/web from c", "[p] would warn about 1 of 2 imports: shop/web from b"}},
		"it denies nothing":          {v1alpha1.Withdraw, "false", nil},
		"it denies one source alone": {v1alpha1.Withdraw, `input.source.cluster == "b"`, []string{"[p] would withdraw 1 of 2 imports: shop/web from b"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := engine.New(engine.Options{Timeout: time.Minute})
			e.Load(nil)
			change, err := e.Change(engine.Policy{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{
				Stage: v1alpha1.StageImport, Existing: tc.existing,
				Rego: "package comity.policies.p\n\ndeny contains {\"msg\": \"no\"} if " + tc.body + "\n",
			}})
			if err != nil {
				t.Fatal(err)
			}
			// The export is looked at by no policy of imports.
			report, err := preview.Run(t.Context(), change, importing{shelf{names: []string{"web"}}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, report.Warnings("p")); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
