// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/findings"
	"github.com/comity-mcs/comity/sync/model"
)

var importKey = types.NamespacedName{Namespace: "shop", Name: "web"}

// importWorld is one import from clusters b and c, and the policies that judge it.
type importWorld struct {
	policies, namespace int
	label, port         map[model.ClusterID]int
	imported, unread    map[model.ClusterID]bool
	none, undecided     bool
	asked               int
	during              func() // happens while the policies are asked
}

func newImportWorld() *importWorld {
	return &importWorld{
		namespace: 1, label: map[model.ClusterID]int{}, port: map[model.ClusterID]int{},
		imported: map[model.ClusterID]bool{}, unread: map[model.ClusterID]bool{},
	}
}

func (w *importWorld) input(id model.ClusterID) decision.ImportInput {
	return decision.ImportInput{
		Cluster: "a",
		Source:  decision.ImportSource{Cluster: string(id), Labels: map[string]string{"label": fmt.Sprint(w.label[id])}},
		Export: decision.ImportedExport{
			Namespace: importKey.Namespace, Name: importKey.Name, Ports: []mcsv1beta1.ServicePort{{Port: int32(w.port[id])}},
		},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: importKey.Namespace, UID: "u", ResourceVersion: fmt.Sprint(w.namespace)}},
		Imported:  w.imported[id], Unread: w.unread[id],
	}
}

func (w *importWorld) digest() string { return fmt.Sprint("policies ", w.policies) }

// evaluate gives a verdict that shows all that it rests on.
func (w *importWorld) evaluate(_ context.Context, in decision.ImportInput) decision.Verdict {
	w.asked++
	if w.during != nil {
		w.during()
	}
	if w.undecided {
		return decision.Verdict{Digest: w.digest(), Problem: fmt.Sprint("attempt ", w.asked)}
	}
	return decision.Verdict{Outcome: decision.Denied, Digest: w.digest(), Matched: []string{"p"}, Violations: []decision.Violation{{
		Policy: "p", Message: fmt.Sprint(in.Source, in.Export, in.Namespace.ResourceVersion, in.Imported, in.Unread),
	}}}
}

func (w *importWorld) cache() *PolicyCache {
	return &PolicyCache{EvaluateImport: w.evaluate, HasImportPolicies: func() bool { return !w.none }, Policies: w.digest, Findings: findings.New()}
}

func (w *importWorld) admit(c *PolicyCache, ids ...model.ClusterID) map[model.ClusterID]decision.Verdict {
	var from []decision.ImportInput
	for _, id := range ids {
		from = append(from, w.input(id))
	}
	return c.AdmitImports(context.Background(), importKey, from)
}

// Whatever changes, in whatever order: the remembered verdict is the one that
// would be reached now.
func TestAVerdictOnAnImportIsNeverStale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newImportWorld()
		c := w.cache()
		ids := []model.ClusterID{"b", "c"}
		change := func(what string, id model.ClusterID) {
			switch what {
			case "policies":
				w.policies = 1 - w.policies // and back again
			case "namespace":
				w.namespace++
			case "label":
				w.label[id] = 1 - w.label[id]
			case "port":
				w.port[id] = 1 - w.port[id]
			case "imported":
				w.imported[id] = !w.imported[id]
			case "unread":
				w.unread[id] = !w.unread[id]
			}
		}
		kinds := rapid.SampledFrom([]string{"policies", "namespace", "label", "port", "imported", "unread", "nothing", "nothing", "nothing"})
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			change(kinds.Draw(t, "change"), rapid.SampledFrom(ids).Draw(t, "of"))
			w.undecided = rapid.IntRange(0, 4).Draw(t, "undecided") == 0
			during := kinds.Draw(t, "change during the evaluation")
			w.during = func() { change(during, "b") }
			w.admit(c, ids...)
			w.during, w.undecided = nil, false
			got := w.admit(c, ids...)
			for _, id := range ids {
				if want := w.evaluate(t.Context(), w.input(id)); fmt.Sprint(got[id]) != fmt.Sprint(want) {
					t.Fatalf("%s: got %+v, want %+v", id, got[id], want)
				}
			}
		}
	})
}

func TestImportPoliciesAreAskedOnceForWhatStaysTheSame(t *testing.T) {
	w := newImportWorld()
	c := w.cache()
	for range 5 {
		w.admit(c, "b", "c")
	}
	if w.asked != 2 {
		t.Errorf("asked %d times, want once for each source", w.asked)
	}
	w.label["b"]++
	if w.admit(c, "b", "c"); w.asked != 3 {
		t.Errorf("asked %d times after a change of one source, want 3", w.asked)
	}
	w.admit(c, "c")
	if len(c.kept[importKey]) != 1 {
		t.Error("remembers a source that is gone")
	}
	w.admit(c)
	if len(c.kept) != 0 {
		t.Error("remembers an import that is gone")
	}
}

func TestAnswersThatWereNotReachedAreNotRemembered(t *testing.T) {
	w := newImportWorld()
	w.undecided = true
	c := w.cache()
	w.admit(c, "b")
	w.admit(c, "b")
	if w.asked != 2 || len(c.kept) != 0 {
		t.Errorf("asked %d times, remembers %d", w.asked, len(c.kept))
	}
}

func TestWithoutImportPoliciesNothingIsEvaluated(t *testing.T) {
	w := newImportWorld()
	c := w.cache()
	w.admit(c, "b")
	w.none = true
	if got := w.admit(c, "b"); got["b"].Outcome != decision.Allowed || w.asked != 1 || len(c.kept) != 0 {
		t.Errorf("%v; asked %d times, remembers %d", got, w.asked, len(c.kept))
	}
}

func TestWhatImportPoliciesFindIsCounted(t *testing.T) {
	w, found := newImportWorld(), findings.New()
	c := &PolicyCache{EvaluateImport: w.evaluate, HasImportPolicies: func() bool { return !w.none }, Policies: w.digest, Findings: found}
	shown := func() (out []string) {
		_, violations := found.Of("p")
		for _, item := range violations.Items {
			out = append(out, item.Namespace+"/"+item.Name+" from "+item.Cluster)
		}
		return out
	}
	w.admit(c, "b", "c")
	if diff := cmp.Diff([]string{"shop/web from b", "shop/web from c"}, shown()); diff != "" {
		t.Error(diff)
	}
	w.admit(c, "c")
	if diff := cmp.Diff([]string{"shop/web from c"}, shown()); diff != "" {
		t.Error(diff)
	}
	w.none = true
	if w.admit(c, "c"); len(shown()) != 0 {
		t.Error(shown())
	}
}
