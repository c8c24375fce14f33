// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/bench/admission"
	"github.com/comity-mcs/comity/webhook/facts"
)

const (
	// mostAllocations of one request to create a ServiceExport, from the handler's
	// ServeHTTP to its return, with the policies that Comity ships, in both processes.
	mostAllocations = 600
	// mostForAPolicy is what each further policy may add.
	mostForAPolicy = 75
)

// ordinary is a policy with one rule. Each rule that it has besides adds some twenty
// allocations, which are OPA's.
func ordinary(n int) engine.Policy {
	return engine.Policy{Name: fmt.Sprintf("further-%d", n), ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: fmt.Sprintf(`package comity.policies.further_%d

deny contains {
	"msg": sprintf("ServiceExport %%s has no owner", [input.object.metadata.name]),
	"field": "metadata.labels",
	"remedy": "Add a label.",
} if {
	not input.object.metadata.labels["app.kubernetes.io/name"]
}
`, n)}}
}

// reaching is a policy on where an export goes.
var reaching = engine.Policy{Name: "reaching", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: `package comity.policies.reaching

warn contains {"msg": sprintf("it reaches %s, which has no such namespace", [concat(", ", group.clusters)])} if {
	some group in input.destinations
	group.namespace.presence == "absent"
}
`}}

// allocations of one request, with what is kept between requests there. On a busy machine
// requests allocate more, so the fewest of several series count.
func allocations(t *testing.T, clusters int, list ...engine.Policy) float64 {
	t.Helper()
	w := admission.NewWorld(clusters, 3)
	e, err := admission.Engine(engine.Options{Timeout: time.Minute}, list...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	handler, err := admission.Handler(w.Reviewer(e))
	if err != nil {
		t.Fatal(err)
	}
	client, err := admission.NewClient(t.Context(), handler)
	if err != nil {
		t.Fatal(err)
	}
	review, err := w.Review(0)
	if err != nil {
		t.Fatal(err)
	}
	// Once, to see that it is allowed; in the runs only the work counts.
	if err := client.Allowed(review); err != nil {
		t.Fatal(err)
	}
	const series, runs = 4, 500
	fewest := math.Inf(1)
	for range series {
		before, _ := admission.Allocated()
		for range runs {
			client.Send(review)
		}
		after, _ := admission.Allocated()
		fewest = min(fewest, float64(after-before)/runs)
	}
	// What else they do, such as to write the count, is a fraction of an allocation.
	return math.Floor(fewest)
}

func TestMain(m *testing.M) {
	admission.Evaluate()
	code := m.Run()
	admission.Forget()
	os.Exit(code)
}

func baseline(t *testing.T) []engine.Policy {
	t.Helper()
	list, err := admission.Baseline()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestAnAdmissionRequestAllocatesLittle(t *testing.T) {
	got := allocations(t, 5, baseline(t)...)
	t.Logf("%.0f allocations with the baseline", got)
	if got > mostAllocations {
		t.Errorf("%.0f allocations with the baseline, want at most %d", got, mostAllocations)
	}
}

func TestAFurtherPolicyAllocatesLittle(t *testing.T) {
	const further = 10
	list := baseline(t)
	before := allocations(t, 5, list...)
	for n := range further {
		list = append(list, ordinary(n))
	}
	each := (allocations(t, 5, list...) - before) / further
	t.Logf("%.1f allocations for each further policy", each)
	if each > mostForAPolicy {
		t.Errorf("%.1f allocations for each further policy, want at most %d", each, mostForAPolicy)
	}
}

func TestAllocationsDoNotGrowWithTheClusters(t *testing.T) {
	for name, list := range map[string][]engine.Policy{"baseline": baseline(t), "destinations": {reaching}} {
		t.Run(name, func(t *testing.T) {
			few, many := allocations(t, 5, list...), allocations(t, 50, list...)
			t.Logf("%.0f and %.0f allocations", few, many)
			if math.Abs(few-many) > 1 {
				t.Errorf("%.0f allocations with 5 clusters and %.0f with 50, want as many", few, many)
			}
		})
	}
}

// What is compared must give the same answers.
func TestAllEnginesAgree(t *testing.T) {
	w := admission.NewWorld(5, 2)
	comity, err := admission.Engine(engine.Options{Timeout: time.Minute}, baseline(t)...)
	if err != nil {
		t.Fatal(err)
	}
	gatekeeper, err := admission.Gatekeeper()
	if err != nil {
		t.Fatal(err)
	}
	precompiled, err := admission.CEL()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*mcsv1beta1.ServiceExport){
		"an ordinary export":            func(*mcsv1beta1.ServiceExport) {},
		"one for two clusters":          scoped("cluster-1,cluster-2"),
		"one for this cluster":          scoped("cluster-0"),
		"one for a stranger":            scoped("cluster-9"),
		"one whose scope is unreadable": scoped("cluster-1,,"),
	} {
		t.Run(name, func(t *testing.T) {
			export := w.Export(0)
			change(export)
			request := decision.Input{Operation: decision.Create, UserInfo: &decision.UserInfo{Groups: []string{}}, Object: export}
			want := w.Reviewer(comity).Review(t.Context(), request)
			for other, evaluator := range map[string]facts.Evaluator{"Gatekeeper's way": gatekeeper, "CEL": precompiled} {
				if got := w.Reviewer(evaluator).Review(t.Context(), request); got.Outcome != want.Outcome {
					t.Errorf("%s: %s (%s), Comity: %s", other, got.Outcome, got.Problem, want.Outcome)
				}
			}
		})
	}
}

func scoped(clusters string) func(*mcsv1beta1.ServiceExport) {
	return func(export *mcsv1beta1.ServiceExport) { export.Annotations[model.AnnotationExportTo] = clusters }
}
