// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// exports is a preview.Source of n published exports. reading is called before each is read.
type exports struct {
	n       int
	reading func(ctx context.Context)
}

func (e exports) Exports(context.Context) (out []mcsv1beta1.ServiceExport, err error) {
	for i := range e.n {
		out = append(out, mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}})
	}
	return out, nil
}

func (e exports) Input(ctx context.Context, audit decision.Input) (decision.Input, error) {
	if e.reading != nil {
		e.reading(ctx)
	}
	return decision.Input{Operation: decision.Audit, Object: audit.Object, Published: true}, nil
}

func (exports) Imports(context.Context) ([]decision.ImportInput, error) { return nil, nil }

// inProcess is an engine without a process of its own.
type inProcess struct{ *engine.Engine }

func (e inProcess) Change(_ context.Context, policy engine.Policy) (engine.Change, error) {
	if e.Digest() == "" {
		return engine.Change{}, engine.ErrNotLoaded
	}
	return e.Engine.Change(policy)
}

func previewer(t *testing.T, source exports) *Checker {
	t.Helper()
	e := engine.New(engine.Options{Timeout: time.Minute})
	e.Load(nil)
	return &Checker{Policies: inProcess{e}, Source: source}
}

// checked is what storing a policy that compiles would do.
func checked(ctx context.Context, t *testing.T, c *Checker, policy *v1alpha1.ExportPolicy) []string {
	t.Helper()
	would, err := c.Check(ctx, policy)
	if err != nil {
		t.Error(err)
	}
	return would
}

func denyingPolicy() *v1alpha1.ExportPolicy {
	return &v1alpha1.ExportPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       v1alpha1.ExportPolicySpec{Rego: "package comity.policies.p\n\ndeny contains {\"msg\": \"no\"} if true\n"},
	}
}

func TestPreviewSaysWhatAPolicyWouldDo(t *testing.T) {
	p := previewer(t, exports{n: 3})
	want := []string{"[p] would withdraw 3 of 3 exports: shop/web-0, shop/web-1, shop/web-2"}
	if diff := cmp.Diff(want, checked(t.Context(), t, p, denyingPolicy())); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	digest := func(c *Checker) string { return c.Policies.(inProcess).Digest() }
	if digest(p) != digest(previewer(t, exports{})) {
		t.Error("the policy is in use")
	}
}

func TestAnExceptionThatIsOverExceptsNothingInAPreview(t *testing.T) {
	policy := denyingPolicy()
	policy.Spec.Exceptions = []v1alpha1.Exception{
		{Namespace: "shop", Name: "web-0", Until: "2000-01-01", Reason: "over"}, {Namespace: "shop", Name: "web-1", Until: "2999-01-01", Reason: "old"},
	}
	warnings := checked(t.Context(), t, previewer(t, exports{n: 2}), policy)
	if diff := cmp.Diff([]string{"[p] would withdraw 1 of 2 exports: shop/web-0", "[p] would warn about 1 of 2 exports: shop/web-1"}, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestOnePreviewIsMadeAtATime(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	p := previewer(t, exports{n: 1, reading: func(context.Context) { close(begun); <-release }})
	first := make(chan []string)
	go func() { first <- checked(context.Background(), t, p, denyingPolicy()) }()
	<-begun
	want := []string{"[p] there is no preview of what it would do: another one is being made"}
	if diff := cmp.Diff(want, checked(t.Context(), t, p, denyingPolicy())); diff != "" {
		t.Errorf("the second (-want +got):\n%s", diff)
	}
	close(release)
	if got := <-first; len(got) != 1 || !strings.HasPrefix(got[0], "[p] would withdraw 1 of 1 exports") {
		t.Errorf("the first: %q", got)
	}
	p.Source = exports{n: 1}
	if got := checked(t.Context(), t, p, denyingPolicy()); len(got) != 1 || !strings.HasPrefix(got[0], "[p] would withdraw") {
		t.Errorf("the third: %q", got)
	}
}

func TestAPreviewTakesAPartOfTheTimeOfTheRequest(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	start := time.Now()
	got := checked(ctx, t, previewer(t, exports{n: 3, reading: func(ctx context.Context) { <-ctx.Done() }}), denyingPolicy())
	if took := time.Since(start); took > 1800*time.Millisecond || ctx.Err() != nil {
		t.Errorf("it took %s", took)
	}
	// The first export was read, too late.
	if diff := cmp.Diff([]string{"[p] looked at 0 of 3 exports, then the time for a preview was over"}, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestWithoutPoliciesThereIsNoPreview(t *testing.T) {
	empty := engine.New(engine.Options{})
	if _, err := (&Checker{Policies: inProcess{empty}, Source: exports{}}).Check(t.Context(), denyingPolicy()); !errors.Is(err, engine.ErrNotLoaded) {
		t.Errorf("before policies are loaded: %v", err)
	}
}
