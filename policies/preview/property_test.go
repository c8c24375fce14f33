// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package preview_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/preview"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// bodies are what a policy may be; PKG stands for its name.
var bodies = map[string]string{
	"everything":   `deny contains {"msg": "no"} if true`,
	"nothing":      `deny contains {"msg": "no"} if false`,
	"warn":         `warn contains {"msg": "hm"} if true`,
	"label":        `deny contains {"msg": "a red one"} if input.object.metadata.labels.color == "red"`,
	"namespace":    `deny contains {"msg": "a test"} if input.namespace.metadata.labels.stage == "test"`,
	"published":    `deny contains {"msg": "new"} if not input.published`,
	"service":      `deny contains {"msg": "no Service"} if not input.service`,
	"fails":        `deny contains {"msg": "no"} if to_number(input.object.metadata.labels.color) > 0`,
	"parameter":    `deny contains {"msg": "not this one"} if input.object.metadata.name == data.comity.params.PKG.name`,
	"warn and no":  "deny contains {\"msg\": \"no\"} if input.object.metadata.labels.color == \"blue\"\n\nwarn contains {\"msg\": \"hm\"} if input.published",
	"to one":       `deny contains {"msg": "not to c", "clusters": ["c"]} if true`,
	"to two":       `deny contains {"msg": "not to b and a", "clusters": ["b", "a"]} if input.object.metadata.labels.color != "red"`,
	"does not run": `deny contains {"msg": "no"} if input.srevice`,
}

// importBodies are those of policies with stage Import.
var importBodies = map[string]string{
	"everything": `deny contains {"msg": "no"} if true`,
	"warn":       `warn contains {"msg": "hm"} if true`,
	"source":     `deny contains {"msg": "not from there"} if input.source.labels.region == "eu"`,
	"export":     `deny contains {"msg": "a red one"} if input.export.labels.color == "red"`,
	"namespace":  `deny contains {"msg": "a test"} if input.namespace.metadata.labels.stage == "test"`,
	"fails":      `deny contains {"msg": "no"} if to_number(input.export.labels.color) > 0`,
	"of exports": `deny contains {"msg": "no"} if input.object.metadata.name == "web"`,
}

// world is what is stored.
type world struct {
	exports []*mcsv1beta1.ServiceExport
	inputs  map[types.UID]decision.Input
	imports []decision.ImportInput
}

func (w world) Imports(context.Context) ([]decision.ImportInput, error) {
	return slices.Clone(w.imports), nil
}

func (w world) Exports(context.Context) (all []mcsv1beta1.ServiceExport, _ error) {
	for _, export := range w.exports {
		all = append(all, *export)
	}
	return all, nil
}

func (w world) Input(_ context.Context, audit decision.Input) (decision.Input, error) {
	return w.inputs[audit.Object.UID], nil
}

// manyClusters are more than an export for all can be published to one by one.
var manyClusters = func() (ids []string) {
	for i := range 40 {
		ids = append(ids, fmt.Sprintf("z-%02d", i))
	}
	return ids
}()

func anyWorld(t *rapid.T) world {
	w := world{inputs: map[types.UID]decision.Input{}}
	peers := map[string]decision.Peer{}
	for _, id := range append([]string{"b", "c", "d"}, manyClusters...)[:rapid.SampledFrom([]int{1, 2, 3, 40}).Draw(t, "members")] {
		peers[id] = decision.Peer{}
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "exports") {
		at := fmt.Sprintf("export %d", i)
		scope := rapid.SampledFrom([]string{"", "", "b", "b,c"}).Draw(t, "scope of "+at)
		stage := rapid.SampledFrom([]string{"test", "prod"}).Draw(t, "stage of "+at)
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-" + stage, Name: fmt.Sprintf("web-%d", i), UID: types.UID(at),
			Labels: map[string]string{"color": rapid.SampledFrom([]string{"red", "blue", "0"}).Draw(t, "color of "+at)},
		}}
		in := decision.Input{
			APIVersion: decision.InputVersion, Operation: decision.Audit, Subject: decision.SubjectServiceExport, Object: export, Cluster: "a",
			Published:      rapid.Bool().Draw(t, "published: "+at),
			Namespace:      &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: export.Namespace, Labels: map[string]string{"stage": stage}}},
			Scope:          decision.Scope{All: true},
			NamespaceScope: decision.Scope{All: true}, EffectiveScope: decision.Scope{All: true}, Peers: peers,
		}
		if in.Published || rapid.Bool().Draw(t, "has a Service: "+at) {
			in.Service = &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: export.Namespace, Name: export.Name},
				Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
			}
		}
		if scope == "b,c" && len(peers) == 1 {
			scope = "b" // c is no member
		}
		if scope != "" {
			export.Annotations = map[string]string{model.AnnotationExportTo: scope}
			in.EffectiveScope = decision.Scope{Clusters: strings.Split(scope, ",")}
		}
		w.exports, w.inputs[export.UID] = append(w.exports, export), in
	}
	for _, cluster := range []string{"b", "c"} {
		w.imports = append(w.imports, anyImport(t, cluster))
	}
	return w
}

// anyImport is an import of shop-test/web or shop-prod/web.
func anyImport(t *rapid.T, from string) decision.ImportInput {
	stage := rapid.SampledFrom([]string{"test", "prod"}).Draw(t, "stage of the import from "+from)
	in := decision.ImportInput{
		APIVersion: decision.InputVersion, Cluster: "a",
		Source:    decision.ImportSource{Cluster: from, Labels: map[string]string{"region": rapid.SampledFrom([]string{"eu", "us"}).Draw(t, "region of "+from)}},
		Export:    decision.ImportedExport{Namespace: "shop-" + stage, Name: "web", Labels: map[string]string{"color": rapid.SampledFrom([]string{"red", "0"}).Draw(t, "color from "+from)}},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-" + stage, Labels: map[string]string{"stage": stage}}},
		Imported:  rapid.Bool().Draw(t, "imported from "+from),
	}
	if rapid.Bool().Draw(t, "not read: "+from) {
		in.Export.Labels, in.Unread = nil, true
	}
	return in
}

func anyPolicy(t *rapid.T, name string) engine.Policy {
	stage, of := v1alpha1.StageExport, bodies
	if rapid.Bool().Draw(t, name+" is of imports") {
		stage, of = v1alpha1.StageImport, importBodies
	}
	body := of[rapid.SampledFrom(slices.Sorted(maps.Keys(of))).Draw(t, "body of "+name)]
	policy := engine.Policy{Name: name, ExportPolicySpec: v1alpha1.ExportPolicySpec{
		Stage:       stage,
		Rego:        "package comity.policies." + name + "\n\n" + strings.ReplaceAll(body, "PKG", name) + "\n",
		Enforcement: rapid.SampledFrom([]v1alpha1.Enforcement{v1alpha1.Deny, v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit}).Draw(t, "enforcement of "+name),
		Existing:    rapid.SampledFrom([]v1alpha1.Existing{v1alpha1.Withdraw, v1alpha1.Keep}).Draw(t, "existing of "+name),
		Grace:       &metav1.Duration{Duration: rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "grace of "+name)},
		Parameters:  &apiextensionsv1.JSON{Raw: []byte(`{"name": "web-1"}`)},
	}}
	if rapid.Bool().Draw(t, "exception of "+name) {
		policy.Exceptions = []v1alpha1.Exception{{Namespace: "shop-prod", Name: "web-2", Until: "2099-01-01", Reason: "old"}}
	}
	switch match := rapid.IntRange(0, 3).Draw(t, "match of "+name); {
	case match == 0 && stage == v1alpha1.StageExport:
		policy.Match = &v1alpha1.Match{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"color": "red"}}}
	case match == 1:
		policy.Match = &v1alpha1.Match{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "prod"}}}
	}
	return policy
}

// What a preview predicts is what then happens: the verdicts once the policy is loaded,
// and what the publisher makes of them.
func TestWhatIsPredictedHappens(t *testing.T) {
	kinds := map[preview.Kind]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := anyWorld(t)
		var list []engine.Policy
		for _, name := range []string{"p", "q"}[:rapid.IntRange(0, 2).Draw(t, "policies")] {
			list = append(list, anyPolicy(t, name))
		}
		e := engine.New(engine.Options{Timeout: time.Minute})
		e.Load(list)
		changed := anyPolicy(t, rapid.SampledFrom([]string{"p", "r"}).Draw(t, "changed"))
		before := engine.New(engine.Options{Timeout: time.Minute})
		before.Load(list)
		change, _ := before.Change(changed) // one that does not compile has effects too
		report, err := preview.Run(t.Context(), change, w)
		if err != nil {
			t.Fatal(err)
		}

		was, imported := w.verdicts(e), w.importVerdicts(e)
		at := slices.IndexFunc(list, func(p engine.Policy) bool { return p.Name == changed.Name })
		if at < 0 {
			list, at = append(list, changed), len(list)
		}
		list[at] = changed
		e.Load(list)
		is := w.verdicts(e)
		matched := 0
		for i, export := range w.exports {
			if slices.Contains(is[i].Matched, changed.Name) {
				matched++
			}
			in := w.inputs[export.UID]
			effect := preview.Effect{}
			for _, found := range report.Exports.Effects {
				if found.Namespace == export.Namespace && found.Name == export.Name {
					effect = found
				}
			}
			kinds[effect.Kind]++
			before, after := publisher(in, was[i]), publisher(in, is[i])
			if in.Published && !stands(before) {
				continue // it is about to be withdrawn, whatever the change is
			}
			if expected := contradiction(effect, in.Published, before, after, is[i].Excluded); expected != "" {
				t.Fatalf("%s: predicted %+v, so that %s; published is %v\nbefore %+v %+v\nafter %+v %+v",
					export.Name, effect, expected, in.Published, was[i], before.Finding, is[i], after.Finding)
			}
			// Of what has no Service, the publisher says nothing.
			plain := len(was[i].Excluded)+len(is[i].Excluded) == 0
			if plain && (was[i].Outcome == is[i].Outcome) != (effect.Kind == 0 || effect.Kind == preview.Warn || isSooner(effect, was[i])) {
				t.Fatalf("predicted %d, and the verdict %s becomes %s", effect.Kind, was[i].Outcome, is[i].Outcome)
			}
		}
		for i, now := range w.importVerdicts(e) {
			in := w.imports[i]
			at := slices.IndexFunc(report.Imports.Effects, func(found preview.Effect) bool {
				return found.Namespace == in.Export.Namespace && found.Name == in.Export.Name && found.Cluster == in.Source.Cluster
			})
			effect := preview.Effect{}
			if at >= 0 {
				effect = report.Imports.Effects[at]
			}
			if expected := importContradiction(effect, in, imported[i], now); expected != "" {
				t.Fatalf("from %s: predicted %+v, so that %s; imported is %v\nbefore %+v\nafter %+v", in.Source.Cluster, effect, expected, in.Imported, imported[i], now)
			}
		}
		if report.Exports.Matched != matched {
			t.Fatalf("%d exports matched, and %d are", report.Exports.Matched, matched)
		}
	})
	// Which effects are drawn is chance; TestEffectOf has each.
	if len(kinds) < 4 {
		t.Errorf("the only effects were %v: the test shows little", kinds)
	}
}

// isSooner: the export is denied before and after, and loses its grace period.
func isSooner(effect preview.Effect, was decision.Verdict) bool {
	return effect.Kind == preview.Withdraw && was.Outcome == decision.Denied
}

func (w world) verdicts(e *engine.Engine) (out []decision.Verdict) {
	for _, export := range w.exports {
		out = append(out, e.Evaluate(context.Background(), w.inputs[export.UID]))
	}
	return out
}

// now is the time of the publisher.
var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// publisher is what the publisher decides after a verdict.
func publisher(in decision.Input, verdict decision.Verdict) decide.ExportDecision {
	verdict.Publication.Published = in.Published
	export := in.Object
	key := types.NamespacedName{Namespace: export.Namespace, Name: export.Name}
	view := decide.ExportView{
		Self: "a", Now: now, Live: decide.Live{Read: true, Export: export.UID},
		Local: decide.LocalExport{Key: key, Export: export, Service: in.Service, Namespace: in.Namespace, Verdict: verdict},
	}
	for id := range in.Peers {
		view.Members = append(view.Members, model.Member{ID: model.ClusterID(id)})
	}
	if in.Published {
		view.Records = []*exchangev1alpha1.ExportRecord{{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: model.ExchangeNamespace("a"), Name: model.RecordName(key.Namespace, key.Name),
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply}},
			},
			Spec: exchangev1alpha1.ExportRecordSpec{Service: exchangev1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name}, ExportUID: export.UID},
		}}
	}
	return decide.Export(view)
}

// stands reports whether other clusters read the export after a decision.
func stands(d decide.ExportDecision) bool { return d.Plan.Record != nil }

// contradiction says how an effect and what the publisher decides before and after the
// change do not belong together; empty if they do. Excluded are the clusters that
// policies exclude after it, some of them after a grace period.
func contradiction(effect preview.Effect, published bool, before, after decide.ExportDecision, excluded []string) string {
	found := after.Finding
	switch {
	case before.Finding.Publication == model.PublicationNone:
		return "" // without a Service nothing is published, whatever policies say
	case effect.Kind == preview.Withdraw && effect.Grace > 0:
		if !published || !stands(before) || !stands(after) || !found.WithdrawnAt.Equal(now.Add(effect.Grace)) {
			return "it is withdrawn after the grace period"
		}
	case effect.Kind == preview.Withdraw:
		if !published || !stands(before) || stands(after) {
			return "it is withdrawn"
		}
	case effect.Kind == preview.Deny:
		if published || stands(after) || found.Publication != model.PublicationWithheld {
			return "it is withheld"
		}
	case effect.Kind == preview.Block:
		if stands(after) != published || found.Publication != model.PublicationPending {
			return "it stays as it is"
		}
	case effect.Kind == preview.Allow:
		if !stands(after) || found.Publication != model.Published || len(excluded) == 0 && !found.WithdrawnAt.IsZero() {
			return "it is published"
		}
	case effect.Kind == preview.Exclude && effect.Grace > 0:
		if !stands(after) || !found.WithdrawnAt.Equal(now.Add(effect.Grace)) {
			return "the first of these clusters loses it after the grace period"
		}
	case effect.Kind == preview.Exclude:
		if !stands(after) || slices.ContainsFunc(effect.Clusters, func(id string) bool { return found.Scope.Contains(model.ClusterID(id)) }) {
			return "these clusters lose it"
		}
	case effect.Kind == preview.Include:
		if !stands(after) || slices.ContainsFunc(effect.Clusters, func(id string) bool { return !found.Scope.Contains(model.ClusterID(id)) }) {
			return "these clusters get it"
		}
	case stands(after) && before.Finding.Scope.String() != found.Scope.String():
		return "its scope stays"
	case stands(before) != stands(after) || before.Finding.Publication != found.Publication:
		return "nothing changes"
	}
	return ""
}

func (w world) importVerdicts(e *engine.Engine) (out []decision.Verdict) {
	for _, in := range w.imports {
		out = append(out, e.EvaluateImport(context.Background(), in))
	}
	return out
}

// importContradiction is contradiction for an import: what the importer keeps out after
// the verdicts.
func importContradiction(effect preview.Effect, in decision.ImportInput, before, after decision.Verdict) string {
	refused := func(verdict decision.Verdict) bool {
		source := model.ClusterID(in.Source.Cluster)
		view := decide.ImportView{
			Self: "a", Peers: []exchange.Published{{Member: model.Member{ID: source}, Known: true, Verdict: &verdict}},
			Local: decide.LocalExport{Key: types.NamespacedName{Namespace: in.Export.Namespace, Name: in.Export.Name}, Namespace: in.Namespace},
		}
		return !slices.Contains(decide.Import(view).Finding.Unsynced, source) // of what is refused, nothing is awaited
	}
	switch effect.Kind {
	case preview.Withdraw, preview.Deny:
		if refused(before) || !refused(after) || (effect.Kind == preview.Withdraw) != in.Imported {
			return "it is imported no longer"
		}
	case preview.Allow:
		if refused(after) || after.Outcome != decision.Allowed || before.Outcome == decision.Allowed {
			return "it is imported"
		}
	case preview.Block:
		if refused(after) || after.Outcome != decision.NotEvaluated || before.Outcome == decision.NotEvaluated {
			return "it stays as it is"
		}
	default:
		if before.Outcome != after.Outcome {
			return "nothing changes"
		}
	}
	return ""
}
