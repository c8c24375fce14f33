// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

var (
	before = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	now    = metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
)

func export(old ...metav1.Condition) *mcsv1beta1.ServiceExport {
	e := &mcsv1beta1.ServiceExport{}
	e.Namespace, e.Name, e.Generation = "default", "web", 2
	e.Status.Conditions = old
	return e
}

func service(typ corev1.ServiceType) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: typ}}
	s.Namespace, s.Name = "default", "web"
	return s
}

// at is a condition as it was stored.
func at(c metav1.Condition, generation int64, when metav1.Time) metav1.Condition {
	c.ObservedGeneration, c.LastTransitionTime = generation, when
	return c
}

// short shows conditions as "Type=Status/Reason: message".
func short(conditions []metav1.Condition) []string {
	var lines []string
	for _, c := range conditions {
		lines = append(lines, fmt.Sprintf("%s=%s/%s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return lines
}

var (
	allowed = decision.Verdict{Outcome: decision.Allowed, Digest: "d"}
	denied  = decision.Verdict{Outcome: decision.Denied, Digest: "d", Violations: []decision.Violation{{
		Policy: "export-scope", Reason: "ScopeTooWide", Field: `metadata.annotations["comity.dev/export-to"]`,
		Message: "the namespace limits exports to b", Remedy: "Name only b.",
	}}}
	excluded = decision.Verdict{
		Outcome: decision.Allowed, Digest: "d", Excluded: []string{"b"},
		Violations: []decision.Violation{{Policy: "residency", Message: "it stays in the EU", Clusters: []string{"b"}, Remedy: "Name only c."}},
		Warnings:   []decision.Violation{{Policy: "p", Message: "note"}},
	}
	portConflict = model.Conflict{Reason: mcsv1beta1.ServiceExportReasonPortConflict, Message: `port "http": 80/TCP in a; 8080/TCP in b.`}
)

const (
	isValid    = "Valid=True/Valid: Service default/web exists and can be exported"
	isAdmitted = "Admitted=True/Admitted: every policy lets this export be published"
	isPublic   = "Ready=True/Exported: published for every cluster of the clusterset"
	isAgreed   = "Conflict=False/NoConflicts: all clusters that export this Service agree"
	isApart    = "Conflict=False/NoConflicts: this export is not part of any import, because it is not published"
)

func TestExport(t *testing.T) {
	deleted := service(corev1.ServiceTypeClusterIP)
	deleted.DeletionTimestamp = &now
	derived := service(corev1.ServiceTypeClusterIP)
	derived.Labels = map[string]string{model.LabelServiceImported: "true"}
	cases := []struct {
		name string
		in   ExportInput
		want []string
	}{
		{
			"a published export with which everybody agrees",
			ExportInput{Service: service(""), Verdict: allowed, Observation: &model.Observation{Publication: model.Published, Scope: model.ScopeAll()}},
			[]string{isValid, isPublic, isAgreed, isAdmitted},
		},
		{
			"an export that the loop has not looked at says nothing of Ready and Conflict",
			ExportInput{Service: service(""), Verdict: allowed},
			[]string{isValid, isAdmitted},
		},
		{
			"no Service",
			ExportInput{Verdict: allowed, Observation: &model.Observation{Publication: model.PublicationNone}},
			[]string{
				"Valid=False/NoService: Service default/web does not exist in this cluster; create it or delete this ServiceExport",
				"Ready=False/Pending: waiting for Service default/web; see condition Valid", isApart, isAdmitted,
			},
		},
		{
			"a Service that is on its way out",
			ExportInput{Service: deleted, Verdict: allowed},
			[]string{"Valid=False/NoService: Service default/web is being deleted; create it again or delete this ServiceExport", isAdmitted},
		},
		{
			"an ExternalName Service",
			ExportInput{Service: service(corev1.ServiceTypeExternalName), Verdict: allowed, Observation: &model.Observation{Publication: model.PublicationNone}},
			[]string{
				"Valid=False/InvalidServiceType: Service default/web has spec.type ExternalName, which cannot be exported; change it, or delete this ServiceExport",
				"Ready=False/Failed: Service default/web cannot be exported; see condition Valid", isApart, isAdmitted,
			},
		},
		{
			"a Service that is itself an import, which the sync loop refuses to export",
			ExportInput{Service: derived, Verdict: allowed, Observation: &model.Observation{Publication: model.PublicationNone, Detail: "the same words"}},
			[]string{
				"Valid=False/InvalidServiceType: Service default/web has the label multicluster.kubernetes.io/service-imported: it is an import; " +
					"export the original Service, or delete this ServiceExport",
				"Ready=False/Failed: Service default/web cannot be exported; see condition Valid", isApart, isAdmitted,
			},
		},
		{
			"a scoped export",
			ExportInput{Service: service(""), Verdict: allowed, Observation: &model.Observation{Publication: model.Published, Scope: model.ScopeOf("c", "b")}},
			[]string{isValid, "Ready=True/Exported: published for clusters b, c", isAgreed, isAdmitted},
		},
		{
			"a denied export does not answer for the conflicts of others",
			ExportInput{Service: service(""), Verdict: denied, Observation: &model.Observation{
				Publication: model.PublicationWithheld, Detail: "policies deny it", Conflicts: []model.Conflict{portConflict},
			}},
			[]string{
				isValid,
				"Ready=False/Failed: policies deny it",
				isApart,
				"Admitted=False/PolicyDenied: policy forbids this export: " + denied.Violations[0].String(),
			},
		},
		{
			"policies forbid it to some clusters",
			ExportInput{Service: service(""), Verdict: excluded, Observation: &model.Observation{Publication: model.Published, Scope: model.ScopeOf("c", "d")}},
			[]string{
				isValid, "Ready=True/Exported: published for clusters c, d", isAgreed,
				"Admitted=True/ClustersExcluded: this export is not published to cluster b, because policy forbids that: " +
					"[residency] it stays in the EU. Refused for cluster b. Remedy: Name only c.; [p] note.",
			},
		},
		{
			"policies forbid it to some clusters, after a grace period",
			ExportInput{Service: service(""), Verdict: excluded, Observation: &model.Observation{
				Publication: model.Published, Scope: model.ScopeAll(), WithdrawnAt: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC),
			}},
			[]string{
				isValid, isPublic, isAgreed,
				"Admitted=True/ClustersExcluded: policy forbids this export to cluster b; clusters that still read it lose it at 2026-11-22T12:00:00Z unless it is corrected by then: " +
					"[residency] it stays in the EU. Refused for cluster b. Remedy: Name only c.; [p] note.",
			},
		},
		{
			"an export that could not be written",
			ExportInput{Service: service(""), Verdict: allowed, Observation: &model.Observation{Publication: model.PublicationFailed, Detail: "Namespace comity-a does not exist; join the cluster"}},
			[]string{isValid, "Ready=False/Failed: Namespace comity-a does not exist; join the cluster", isAgreed, isAdmitted},
		},
		{
			"an export on its way",
			ExportInput{Service: service(""), Verdict: allowed, Observation: &model.Observation{Publication: model.PublicationPending}},
			[]string{isValid, "Ready=False/Pending: not published yet; Comity is working on it", isAgreed, isAdmitted},
		},
		{
			"several conflicts, in the order that merge gives them, which is that of KEP-1645",
			ExportInput{Service: service(""), Verdict: allowed, Observation: &model.Observation{
				Publication: model.Published, Scope: model.ScopeAll(),
				Conflicts: []model.Conflict{portConflict, {Reason: mcsv1beta1.ServiceExportReasonSessionAffinityConflict, Message: "sessionAffinity: ClientIP in a; None in b."}},
			}},
			[]string{
				isValid, isPublic,
				`Conflict=True/PortConflict,SessionAffinityConflict: port "http": 80/TCP in a; 8080/TCP in b. sessionAffinity: ClientIP in a; None in b.`,
				isAdmitted,
			},
		},
		{
			"warnings of a policy",
			ExportInput{Service: service(""), Verdict: decision.Verdict{Outcome: decision.Allowed, Warnings: []decision.Violation{{Policy: "p", Message: "one."}, {Policy: "p", Message: "two."}}}},
			[]string{isValid, "Admitted=True/AdmittedWithWarnings: [p] one.; [p] two."},
		},
		{
			"policies that could not be asked",
			ExportInput{Service: service(""), Verdict: decision.Verdict{Problem: "evaluation took more than 100ms"}},
			[]string{isValid, "Admitted=Unknown/NotEvaluated: the policies could not be evaluated, so nothing new is published: evaluation took more than 100ms"},
		},
		{
			"a problem of the import in this cluster",
			ExportInput{Service: service(""), Verdict: allowed, Observation: &model.Observation{
				Publication: model.Published, Scope: model.ScopeAll(), Problems: []model.Problem{{Reason: "NameTaken", Message: "Service default/derived-1 is not Comity's; rename it"}},
			}},
			[]string{isValid, isPublic + "; in this cluster: NameTaken: Service default/derived-1 is not Comity's; rename it", isAgreed, isAdmitted},
		},
		{
			"an import that another export freezes",
			ExportInput{Service: service(""), Verdict: allowed, Observation: &model.Observation{
				Publication: model.Published, Scope: model.ScopeAll(),
				Freeze: &model.Freeze{By: model.Source{Cluster: "b", UID: "other", State: model.SourceNotRead}, Waits: true},
			}},
			[]string{isValid, isPublic + "; in this cluster: Frozen: the export of cluster b decides the import, and is not read or missing; condition Frozen of ServiceImport default/web has the command that ends it", isAgreed, isAdmitted},
		},
		{
			"an import that another export freezes, and that is as this one asks",
			ExportInput{Service: service(""), Verdict: allowed, Observation: &model.Observation{
				Publication: model.Published, Scope: model.ScopeAll(),
				Freeze: &model.Freeze{By: model.Source{Cluster: "b", UID: "other", State: model.SourceNotRead}},
			}},
			[]string{isValid, isPublic, isAgreed, isAdmitted},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.in.Export = export()
			got := slices.DeleteFunc(Export(c.in, now), func(c metav1.Condition) bool { return c.Type == condition.TypeAvailable }) // see TestAvailable
			if diff := cmp.Diff(c.want, short(got)); diff != "" {
				t.Error(diff)
			}
			for _, one := range got {
				if one.ObservedGeneration != 2 || !one.LastTransitionTime.Equal(&now) {
					t.Errorf("%s: generation %d, transition %s", one.Type, one.ObservedGeneration, one.LastTransitionTime)
				}
			}
		})
	}
}

func TestTheTransitionTimeMovesOnlyWithTheStatus(t *testing.T) {
	old := []metav1.Condition{
		at(condition.Valid(condition.ReasonInvalidServiceType, "other words"), 1, before),
		at(condition.Ready(condition.ReasonExported, "other words"), 1, before),
	}
	got := Export(ExportInput{
		Export:      export(old...),
		Verdict:     allowed,
		Observation: &model.Observation{Publication: model.PublicationNone},
	}, now)
	want := map[string]metav1.Time{
		"Valid":    before, // another reason, still False
		"Ready":    now,    // was True
		"Conflict": now,    // new
		"Admitted": now,

		"Available": now,
	}
	for _, c := range got {
		if moment := want[c.Type]; !c.LastTransitionTime.Equal(&moment) {
			t.Errorf("%s: transition at %s, want %s", c.Type, c.LastTransitionTime, moment)
		}
	}
}

func TestWhatIsNotKnownYetStaysAsItIs(t *testing.T) {
	conflicting := at(condition.Conflict("PortConflict", "a, b and c differ"), 2, before)
	agreed := at(condition.Conflict("NoConflicts", "fine"), 2, before)
	warned := at(condition.Admitted(condition.ReasonAdmittedWithWarnings, "c has no namespace"), 2, before)
	passed := at(condition.Admitted(condition.ReasonAdmitted, "yes"), 2, before)
	ready := at(condition.Ready(condition.ReasonExported, "out"), 1, before)
	seen := func(change func(*model.Observation)) *model.Observation {
		o := &model.Observation{Publication: model.Published, Scope: model.ScopeAll(), Starting: []model.ClusterID{"c"}}
		if change != nil {
			change(o)
		}
		return o
	}
	cases := []struct {
		name    string
		old     metav1.Condition
		seen    *model.Observation
		verdict decision.Verdict
		stays   bool
	}{
		{"Ready before the loop looked", ready, nil, allowed, true},
		{
			"Ready of what stands published while no policy is loaded", at(ready, 2, before),
			seen(func(o *model.Observation) { o.Publication = model.PublicationPending }), decision.Verdict{}, true,
		},
		{
			"Ready of what stands published when the policies fail", at(ready, 2, before),
			seen(func(o *model.Observation) { o.Publication = model.PublicationPending }), decision.Verdict{Digest: "d", Problem: "p"}, false,
		},
		{"a conflict before the loop looked", conflicting, nil, allowed, true},
		{"a conflict while a peer is unread", conflicting, seen(nil), allowed, true},
		{
			"a conflict of which only a part is seen while a peer is unread", conflicting,
			seen(func(o *model.Observation) { o.Conflicts = []model.Conflict{portConflict} }), allowed, true,
		},
		{"a conflict once everybody was read", conflicting, seen(func(o *model.Observation) { o.Starting = nil }), allowed, false},
		{
			"a conflict when another one comes to light while a peer is unread", conflicting,
			seen(func(o *model.Observation) {
				o.Conflicts = []model.Conflict{{Reason: mcsv1beta1.ServiceExportReasonTypeConflict, Message: "m"}}
			}), allowed, true,
		},
		{"a conflict of an export that is withheld", conflicting, seen(func(o *model.Observation) { o.Publication = model.PublicationWithheld }), denied, false},
		{
			"agreement when a conflict comes to light", agreed,
			seen(func(o *model.Observation) { o.Conflicts = []model.Conflict{portConflict} }), allowed, false,
		},
		{"a warning while a peer is unread", warned, seen(nil), allowed, true},
		{"a warning before the loop looked", warned, nil, allowed, true},
		{"a warning once everybody was read", warned, seen(func(o *model.Observation) { o.Starting = nil }), allowed, false},
		{"a warning when policy excludes a cluster while a peer is unread", warned, seen(nil), excluded, true},
		{"a warning when policy excludes a cluster", warned, seen(func(o *model.Observation) { o.Starting = nil }), excluded, false},
		{"what was admitted when policy excludes a cluster", passed, seen(nil), excluded, false},
		{"a warning when policy refuses", warned, seen(nil), denied, false},
		{"a refusal when policy allows it", at(condition.Admitted(model.ReasonPolicyDenied, "no"), 2, before), nil, allowed, false},
		{"a warning on what was stored before", at(warned, 1, before), seen(nil), allowed, false},
		{"a verdict while no policy is loaded", passed, seen(nil), decision.Verdict{}, true},
		{"a verdict when the policies fail", passed, seen(nil), decision.Verdict{Digest: "d", Problem: "p"}, false},
		{"a verdict on what was stored before, while no policy is loaded", at(passed, 1, before), seen(nil), decision.Verdict{}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := Export(ExportInput{Export: export(c.old), Service: service(""), Observation: c.seen, Verdict: c.verdict}, now)
			for _, one := range got {
				if one.Type == c.old.Type && cmp.Equal(one, c.old) != c.stays {
					t.Errorf("got %s, want it to stay: %t", short([]metav1.Condition{one}), c.stays)
				}
			}
		})
	}
}

func TestMessagesAreBoundWithAHundredClustersAndAThousandViolations(t *testing.T) {
	var ids []model.ClusterID
	var conflicts []model.Conflict
	verdict := decision.Verdict{Outcome: decision.Denied}
	for i := range 1000 {
		verdict.Violations = append(verdict.Violations, decision.Violation{Policy: fmt.Sprint("policy-", i), Message: strings.Repeat("é", i)})
	}
	for i := range 100 {
		ids = append(ids, model.ClusterID(fmt.Sprintf("cluster-%03d", i)))
		conflicts = append(conflicts, model.Conflict{Reason: mcsv1beta1.ServiceExportReasonPortConflict, Message: strings.Repeat("x", 500)})
	}
	got := Export(ExportInput{Export: export(), Service: service(""), Verdict: verdict, Observation: &model.Observation{
		Publication: model.Published, Scope: model.ScopeOf(ids...), Conflicts: conflicts,
	}}, now)
	for _, c := range got {
		if len(c.Message) > condition.MaxMessage {
			t.Errorf("%s: message of %d bytes, reason of %d", c.Type, len(c.Message), len(c.Reason))
		}
	}
	if want := "published for clusters cluster-000, cluster-001, cluster-002, cluster-003, cluster-004, cluster-005, cluster-006, " +
		"cluster-007, cluster-008, cluster-009 and 90 more"; got[1].Message != want {
		t.Errorf("got %q", got[1].Message)
	}
	if !strings.Contains(got[3].Message, " more") {
		t.Errorf("the violations left out are not counted: %q", got[3].Message)
	}
}

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	in := ExportInput{Export: export(), Service: service(""), Verdict: denied, Observation: &model.Observation{
		Publication: model.Published, Scope: model.ScopeOf("c", "b", "a"), Conflicts: []model.Conflict{portConflict},
	}}
	first := fmt.Sprint(Export(in, now))
	for range 1000 {
		if again := fmt.Sprint(Export(in, now)); again != first {
			t.Fatalf("got %s\nthen %s", first, again)
		}
	}
}

func TestComputedStatusIsStable(t *testing.T) {
	in := ExportInput{Export: export(), Service: service(""), Verdict: allowed, Observation: &model.Observation{Publication: model.Published, Scope: model.ScopeAll()}}
	first := Export(in, before)
	in.Export.Status.Conditions = append(first, metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue})
	again := Export(in, now)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error(diff)
	}
	if !SameConditions(in.Export.Status.Conditions, again) {
		t.Error("a status that is as it should be is to be written again")
	}
}

func TestTransitionsAreWhatAnEventTellsOf(t *testing.T) {
	old := []metav1.Condition{condition.Valid(condition.ReasonNoService, "m"), condition.Ready(model.ReasonPending, "m")}
	wanted := []metav1.Condition{
		condition.Valid(condition.ReasonValid, "m"),         // back to normal
		condition.Ready(model.ReasonPending, "other words"), // only the words
		condition.Conflict("NoConflicts", "m"),              // new, nothing to tell
		condition.Admitted(model.ReasonPolicyDenied, "m"),   // new, notable
	}
	got := Transitions(mcsv1beta1.ServiceExportKindName, old, wanted)
	if diff := cmp.Diff([]string{"Valid=True/Valid: m", "Admitted=False/PolicyDenied: m"}, short(got)); diff != "" {
		t.Error(diff)
	}
}

// An export that is denied and still published says until when, and keeps saying so
// while a new process does not know yet.
func TestAGracePeriodIsAnnounced(t *testing.T) {
	denied := decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "owner", Message: "no owner"}}}
	at := time.Date(2026, 11, 22, 12, 10, 0, 0, time.UTC)
	in := ExportInput{
		Export: &mcsv1beta1.ServiceExport{}, Verdict: denied,
		Observation: &model.Observation{Publication: model.Published, WithdrawnAt: at},
	}
	find := func(conditions []metav1.Condition, typ string) metav1.Condition {
		t.Helper()
		c := meta.FindStatusCondition(conditions, typ)
		if c == nil {
			t.Fatalf("there is no %s", typ)
		}
		return *c
	}
	conditions := Export(in, metav1.NewTime(at.Add(-time.Minute)))
	admitted := find(conditions, condition.TypeAdmitted)
	want := "policy forbids this export, which will be withdrawn at 2026-11-22T12:10:00Z unless it is corrected by then: [owner] no owner."
	if admitted.Status != metav1.ConditionFalse || admitted.Reason != "PolicyDenied" || admitted.Message != want {
		t.Errorf("got  %s %s %s\nwant %s", admitted.Status, admitted.Reason, admitted.Message, want)
	}

	in.Export.Status.Conditions, in.Observation = conditions, nil
	if got := find(Export(in, metav1.NewTime(at)), condition.TypeAdmitted).Message; got != want {
		t.Errorf("after a restart it says %s", got)
	}

	in.Observation = &model.Observation{Publication: model.PublicationWithheld, Detail: "[owner] no owner"}
	if got := find(Export(in, metav1.NewTime(at)), condition.TypeAdmitted).Message; got != "policy forbids this export: [owner] no owner." {
		t.Errorf("once it is withdrawn it says %s", got)
	}
}
