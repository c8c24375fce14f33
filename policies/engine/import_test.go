// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// importing is a policy with stage Import that denies with this message if the body
// holds.
func importing(name, msg, body string) engine.Policy {
	policy := denying(name, msg, body)
	policy.Stage = v1alpha1.StageImport
	return policy
}

// fromB is the import into cluster a of shop/db from cluster b, of which all is known.
func fromB() decision.ImportInput {
	return decision.ImportInput{
		APIVersion: decision.InputVersion, Cluster: "a",
		Source: decision.ImportSource{Cluster: "b", Labels: map[string]string{"tier": "test"}},
		Export: decision.ImportedExport{
			Namespace: "shop", Name: "db", Type: mcsv1beta1.ClusterSetIP, Labels: map[string]string{"team": "shop"},
			Ports: []mcsv1beta1.ServicePort{{Name: "sql", Protocol: corev1.ProtocolTCP, Port: 5432}},
		},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"stage": "prod"}}},
	}
}

// inNamespaces is the policy for namespaces with this label alone.
func inNamespaces(policy engine.Policy, label, value string) engine.Policy {
	policy.Match = &v1alpha1.Match{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}}
	return policy
}

func TestAnImportIsEvaluatedByTheImportPoliciesAlone(t *testing.T) {
	type change = func(*decision.ImportInput)
	unread := func(in *decision.ImportInput) {
		in.Unread, in.Export = true, decision.ImportedExport{Namespace: "shop", Name: "db"}
	}
	unlabeled := func(in *decision.ImportInput) { in.Source.Unknown, in.Source.Labels = true, nil }
	kept := func(p engine.Policy) engine.Policy { p.Existing = v1alpha1.Keep; return p }
	enforced := func(p engine.Policy, e v1alpha1.Enforcement) engine.Policy { p.Enforcement = e; return p }
	unusable := func(name string) engine.Policy {
		return engine.Policy{Name: name, ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "no rego", Stage: v1alpha1.StageImport}}
	}
	for name, tc := range map[string]struct {
		list   []engine.Policy
		change change
		want   string
	}{
		"there is none":                        {nil, nil, "Allowed"},
		"a policy on exports is not asked":     {[]engine.Policy{denying("p", "no", "true")}, nil, "Allowed"},
		"an export policy that cannot be used": {[]engine.Policy{broken("p")}, nil, "Allowed"},
		"by the source":                        {[]engine.Policy{importing("p", "no", `input.source.cluster == "b"`)}, nil, "Denied: p no"},
		"by a label of the source":             {[]engine.Policy{importing("p", "no", `input.source.labels.tier == "test"`)}, nil, "Denied: p no"},
		"by what is exported":                  {[]engine.Policy{importing("p", "no", `input.export.ports[_].port == 5432; input.export.labels.team == "shop"; input.export.type == "ClusterSetIP"`)}, nil, "Denied: p no"},
		"by tiers that do not end with none":   {[]engine.Policy{importing("p", "no", `tiers := input.export.tiers; not tiers[count(tiers) - 1] == "none"`)}, func(in *decision.ImportInput) { in.Export.Tiers = []string{"self", "*"} }, "Denied: p no"},
		"without tiers":                        {[]engine.Policy{importing("p", "no", `tiers := input.export.tiers; not tiers[count(tiers) - 1] == "none"`)}, nil, "Denied: p no"},
		"tiers that end with none":             {[]engine.Policy{importing("p", "no", `tiers := input.export.tiers; not tiers[count(tiers) - 1] == "none"`)}, func(in *decision.ImportInput) { in.Export.Tiers = []string{"self", "none"} }, "Allowed"},
		"by the namespace here":                {[]engine.Policy{importing("p", "no", `input.namespace.metadata.labels.stage == "prod"; input.cluster == "a"`)}, nil, "Denied: p no"},
		"several":                              {[]engine.Policy{importing("q", "no", "true"), importing("p", "no", "true"), denying("r", "no", "true")}, nil, "Denied: p no, q no"},
		"Warn":                                 {[]engine.Policy{enforced(importing("p", "no", "true"), "Warn")}, nil, "Allowed; p no"},
		"Audit":                                {[]engine.Policy{enforced(importing("p", "no", "true"), "Audit")}, nil, "Allowed; p no"},
		"the namespace does not match":         {[]engine.Policy{inNamespaces(importing("p", "no", "true"), "stage", "test")}, nil, "Allowed"},
		"the namespace matches":                {[]engine.Policy{inNamespaces(importing("p", "no", "true"), "stage", "prod")}, nil, "Denied: p no"},
		"a namespace that is not known":        {[]engine.Policy{inNamespaces(importing("p", "no", "true"), "stage", "test")}, func(in *decision.ImportInput) { in.Namespace = nil }, "Denied: p no"},
		"FAULT 34: a policy cannot be used":    {[]engine.Policy{unusable("p")}, nil, "NotEvaluated by p: policy p cannot be used as it is stored (p.rego:1:1: "},
		"it is for other namespaces":           {[]engine.Policy{inNamespaces(unusable("p"), "stage", "test")}, nil, "Allowed"},
		"it only warns":                        {[]engine.Policy{enforced(unusable("p"), "Warn")}, nil, "Allowed"},
		"another denies":                       {[]engine.Policy{unusable("p"), importing("q", "no", "true")}, nil, "Denied: q no"},
		"a builtin fails":                      {[]engine.Policy{importing("p", "no", `to_number(input.export.name) > 1`)}, nil, "NotEvaluated by p: policy p: p.rego:4:"},
		"an answer of another form":            {[]engine.Policy{{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Stage: v1alpha1.StageImport, Rego: header + "deny contains {\"msg\": input.source.labels[_] == \"x\"} if true\n"}}}, nil, "NotEvaluated"},
		"Keep, and it does not stand":          {[]engine.Policy{kept(importing("p", "no", "true"))}, nil, "Denied: p no"},
		"Keep, and it stands":                  {[]engine.Policy{kept(importing("p", "no", "true"))}, func(in *decision.ImportInput) { in.Imported = true }, "Allowed; p no"},
		"an exception": {[]engine.Policy{func() engine.Policy {
			p := importing("p", "no", "true")
			p.Exceptions = []v1alpha1.Exception{{Namespace: "shop", Until: "2027-01-31", Reason: "old"}}
			return p
		}()}, nil, "Allowed; p no"},
		"Keep beside another":                   {[]engine.Policy{kept(importing("p", "no", "true")), importing("q", "no", "true")}, func(in *decision.ImportInput) { in.Imported = true }, "Denied: q no; p no"},
		"unread, by the source":                 {[]engine.Policy{importing("p", "no", `input.source.labels.tier == "test"; input.export.namespace == "shop"`)}, unread, "Denied: p no"},
		"unread, allowed by the source":         {[]engine.Policy{importing("p", "no", `input.source.labels.tier == "prod"`)}, unread, "Allowed"},
		"unread, by the export":                 {[]engine.Policy{importing("p", "no", `not input.export.labels.owner`)}, unread, "NotEvaluated: policy p reads what is not known of cluster b yet"},
		"unread, by the export as a whole":      {[]engine.Policy{importing("p", "no", `e := input.export; not e.labels.owner`)}, unread, "NotEvaluated: policy p reads what is not known of cluster b yet"},
		"unread, by all of input":               {[]engine.Policy{importing("p", "no", `not object.get(input, "export", {}).labels.owner`)}, unread, "NotEvaluated: policy p reads what is not known of cluster b yet"},
		"unread, and another denies":            {[]engine.Policy{importing("p", "no", `not input.export.labels.owner`), importing("q", "no", "true")}, unread, "Denied: q no"},
		"unread, Warn":                          {[]engine.Policy{enforced(importing("p", "no", `not input.export.labels.owner`), "Warn")}, unread, "Allowed"},
		"without labels, by the id":             {[]engine.Policy{importing("p", "no", `input.source.cluster == "b"`)}, unlabeled, "Denied: p no"},
		"without labels, by a label":            {[]engine.Policy{importing("p", "no", `not input.source.labels.trusted`)}, unlabeled, "NotEvaluated: policy p reads what is not known of cluster b yet"},
		"without labels, by the source's whole": {[]engine.Policy{importing("p", "no", `s := input.source; not s.labels.trusted`)}, unlabeled, "NotEvaluated: policy p reads what is not known of cluster b yet"},
	} {
		t.Run(name, func(t *testing.T) {
			e, in := newEngine(t, engine.Options{}), fromB()
			e.Load(tc.list)
			if tc.change != nil {
				tc.change(&in)
			}
			if got := described(e.EvaluateImport(t.Context(), in)); !strings.HasPrefix(got, tc.want) || tc.want == "Allowed" && got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// described is a verdict as one line: outcome, violations or problem, warnings.
func described(v decision.Verdict) string {
	text := v.Outcome.String()
	if len(v.Failed) > 0 {
		text += " by " + strings.Join(v.Failed, ", ")
	}
	list := func(violations []decision.Violation) string {
		var out []string
		for _, violation := range violations {
			out = append(out, violation.Policy+" "+violation.Message)
		}
		return strings.Join(out, ", ")
	}
	if v.Problem != "" {
		text += ": " + v.Problem
	}
	if len(v.Violations) > 0 {
		text += ": " + list(v.Violations)
	}
	if len(v.Warnings) > 0 {
		text += "; " + list(v.Warnings)
	}
	return text
}

// An entry with clusters would be taken for one about all of an import's source, or for
// one about none: the author gets an error, at compile time if the type checker knows it, and else at run time.
func TestAnEntryOfAnImportPolicyNamesNoClusters(t *testing.T) {
	at := func(stage v1alpha1.Stage, rest string) engine.Policy {
		return engine.Policy{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Stage: stage, Rego: header + rest}}
	}
	limit := regexp.MustCompile(`, "clusters": [^}]*`)
	for name, rest := range map[string]string{
		"deny":                      "deny contains {\"msg\": \"no\", \"clusters\": [\"c\"]}\n",
		"warn":                      "warn contains {\"msg\": \"no\", \"clusters\": [\"c\"]}\n",
		"an entry that is computed": "deny contains entry if entry := {\"msg\": \"no\", \"clusters\": [input.source.cluster]}\n",
		"of one rule in two":        "deny contains {\"msg\": \"no\"} if input.cluster == \"a\"\n\ndeny contains {\"msg\": \"no\", \"clusters\": [input.source.cluster]} if input.cluster == \"b\"\n",
		"clusters as a string":      "deny contains {\"msg\": \"no\", \"clusters\": \"c\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			err := newEngine(t, engine.Options{}).Check(at(v1alpha1.StageImport, rest))
			if err == nil || !strings.Contains(err.Error(), "contains an object with clusters; expected objects") || !strings.Contains(err.Error(), "about its source alone") {
				t.Errorf("got %v", err)
			}
			if err := newEngine(t, engine.Options{}).Check(at(v1alpha1.StageImport, limit.ReplaceAllString(rest, ""))); err != nil {
				t.Errorf("without clusters: %v", err)
			}
		})
	}
	unknown := "deny contains json.unmarshal(input.export.annotations.entry)\n"
	in := fromB()
	for entry, want := range map[string]string{
		`{"msg": "no"}`:                    "Denied: p no",
		`{"msg": "no", "clusters": ["c"]}`: "NotEvaluated by p: policy p: deny contains an object with clusters; expected objects",
		`{"msg": "no", "clusters": []}`:    "NotEvaluated by p: policy p: deny contains an object with clusters; expected objects",
	} {
		in.Export.Annotations = map[string]string{"entry": entry}
		if got := described(loaded(t, engine.Options{}, at(v1alpha1.StageImport, unknown)).EvaluateImport(t.Context(), in)); !strings.HasPrefix(got, want) {
			t.Errorf("entry %s\ngot  %s\nwant %s", entry, got, want)
		}
	}
}

func TestAnImportPolicyIsNotAskedOfExports(t *testing.T) {
	e := loaded(t, engine.Options{}, importing("p", "no", "true"))
	if diff := cmp.Diff([]string{}, said(t, e)); diff != "" {
		t.Error(diff)
	}
	e.Load([]engine.Policy{{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "no rego", Stage: v1alpha1.StageImport}}})
	if diff := cmp.Diff([]string{}, said(t, e)); diff != "" {
		t.Errorf("one that cannot be used:\n%s", diff)
	}
}

func TestMatchedAreThePoliciesOfTheStage(t *testing.T) {
	e := newEngine(t, engine.Options{Required: []string{"missing"}})
	e.Load([]engine.Policy{
		importing("i", "no", "true"), inNamespaces(importing("j", "no", "true"), "stage", "test"), denying("e", "no", "true"),
		{Name: "k", ExportPolicySpec: v1alpha1.ExportPolicySpec{Stage: v1alpha1.StageImport, Rego: "no rego"}},
	})
	if diff := cmp.Diff([]string{"i", "k", "missing"}, e.EvaluateImport(t.Context(), fromB()).Matched); diff != "" {
		t.Errorf("imports (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"e", "missing"}, e.Evaluate(t.Context(), request()).Matched); diff != "" {
		t.Errorf("exports (-want +got):\n%s", diff)
	}
}

func TestNoImportIsEvaluatedBeforePoliciesAreLoaded(t *testing.T) {
	e := newEngine(t, engine.Options{})
	if got := described(e.EvaluateImport(t.Context(), fromB())); got != "NotEvaluated: policies are not loaded yet" || !e.HasImportPolicies() {
		t.Error(got)
	}
	e.Load([]engine.Policy{denying("p", "no", "true")})
	if e.HasImportPolicies() {
		t.Error("an export policy is taken for one on imports")
	}
	e.Load([]engine.Policy{importing("p", "no", "false")})
	if !e.HasImportPolicies() {
		t.Error("the import policy is not seen")
	}
}

func TestFAULT34ARequiredPolicyThatDoesNotExistBlocksEveryImport(t *testing.T) {
	e := newEngine(t, engine.Options{Required: []string{"p"}})
	e.Load(nil)
	if got := described(e.EvaluateImport(t.Context(), fromB())); !strings.HasPrefix(got, "NotEvaluated by p: policy p: it does not exist") || !e.HasImportPolicies() {
		t.Error(got)
	}
	e.Load([]engine.Policy{importing("p", "no", "false")})
	if got := described(e.EvaluateImport(t.Context(), fromB())); got != "Allowed" {
		t.Error(got)
	}
}

func TestAFailureOfAnImportPolicyIsCounted(t *testing.T) {
	e := loaded(t, engine.Options{}, importing("p", "no", `to_number(input.export.name) > 1`))
	e.EvaluateImport(t.Context(), fromB())
	got := e.Failures()["p"]
	if got.Count != 1 || got.Object != "ServiceImport shop/db from cluster b" || got.Operation != decision.Audit {
		t.Errorf("%+v", got)
	}
}

func TestAStageHasAnInputOfItsOwn(t *testing.T) {
	at := func(stage v1alpha1.Stage, body string) engine.Policy {
		return engine.Policy{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: rule(body), Stage: stage}}
	}
	const export, imported = v1alpha1.StageExport, v1alpha1.StageImport
	for name, tc := range map[string]struct {
		policy  engine.Policy
		message string
	}{
		"the object of an import": {at(imported, `input.object.metadata.name == "x"`), "p.rego:4:2: undefined ref: input.object.metadata.name; have: \"object\"; " +
			"want (one of): [\"apiVersion\" \"cluster\" \"export\" \"namespace\" \"source\"]; expected a field that policies of this stage have: see spec.stage, and policies/INPUT.md"},
		"the source of an export":               {at(export, `input.source.cluster == "x"`), "p.rego:4:2: undefined ref: input.source.cluster; have: \"source\"; want (one of): [\"apiVersion\" \"cluster\" \"destinations\""},
		"the stage is Export by default":        {at("", `input.source.cluster == "x"`), "undefined ref: input.source.cluster"},
		"what neither has":                      {at(imported, `input.srevice == "x"`), "p.rego:4:2: undefined ref: input.srevice"},
		"a field of the export that it has not": {at(imported, `input.export.port == 80`), "p.rego:4:2: undefined ref: input.export.port"},
		"the user of an import":                 {at(imported, `input.userInfo.username == "x"`), "undefined ref: input.userInfo.username"},
		"what only requests have, hidden":       {at(imported, `input.operation == "AUDIT"`), "undefined ref: input.operation"},
		"a rule of the library on exports":      {at(imported, `"b" in data.comity.lib.reached`), "p.rego:4:9: data.comity.lib.reached is not in the library of policies with stage Import"},
		"a rule that no library has":            {at(export, `"b" in data.comity.lib.raeched`), "p.rego:4:9: data.comity.lib.raeched is not in the library of policies with stage Export"},
		"a rule of the library on nothing":      {at(imported, `data.comity.lib.list(["b"]) == input.source.cluster`), ""},
		"both have it":                          {at(imported, `input.namespace.metadata.name == input.cluster`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := newEngine(t, engine.Options{}).Check(tc.policy)
			if (err == nil) != (tc.message == "") || err != nil && !strings.Contains(err.Error(), tc.message) {
				t.Errorf("got  %v\nwant %s", err, tc.message)
			}
		})
	}
}

func TestALibraryServesBothStages(t *testing.T) {
	library := map[string]string{
		"lib/export.rego": "package comity.lib\n\nof_export if input.object.metadata.name == \"x\"\n\nby_another if of_export\n\nby_path if data.comity.lib.by_another\n",
		"lib/import.rego": "package comity.lib\n\nof_import if input.source.cluster == \"b\"\n",
		"lib/lib.rego":    "package comity.lib\n\nof_both if input.cluster == \"a\"\n",
	}
	if err := engine.UseLibrary(t, library); err != nil {
		t.Fatal(err)
	}
	uses := func(stage v1alpha1.Stage, name string) error {
		return newEngine(t, engine.Options{}).Check(engine.Policy{Name: "p", ExportPolicySpec: v1alpha1.ExportPolicySpec{Stage: stage, Rego: rule("data.comity.lib." + name)}})
	}
	got := map[string]string{}
	for _, name := range []string{"of_export", "by_another", "by_path", "of_import", "of_both"} {
		for _, stage := range []v1alpha1.Stage{v1alpha1.StageExport, v1alpha1.StageImport} {
			if err := uses(stage, name); err == nil {
				got[name] += string(stage) + " "
			}
		}
	}
	want := map[string]string{"of_export": "Export ", "by_another": "Export ", "by_path": "Export ", "of_import": "Import ", "of_both": "Export Import "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for text, message := range map[string]string{
		"x if input.srevice":                       "lib.rego:3:6: undefined ref: input.srevice",
		"x if input.object.metadata.name == \"x\"": "lib.rego:3:6: undefined ref: input.object.metadata.name; have:",
	} {
		err := engine.UseLibrary(t, map[string]string{"lib.rego": "package comity.lib\n\n" + text})
		if err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v; want %s", text, err, message)
		}
	}
}

func TestADigestDependsOnStageAndExisting(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(*engine.Policy){
		"as it is": func(*engine.Policy) {},
		"Import":   func(p *engine.Policy) { p.Stage = v1alpha1.StageImport },
		"Keep":     func(p *engine.Policy) { p.Existing = v1alpha1.Keep },
	} {
		policy := denying("p", "no", "true")
		change(&policy)
		digest := loaded(t, engine.Options{}, policy).Digest()
		if other, is := seen[digest]; is {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[digest] = name
	}
}
