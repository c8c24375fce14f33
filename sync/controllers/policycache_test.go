// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/findings"
)

// world is a cluster of one export, and the policies that judge it.
type world struct {
	client.Reader
	versions  map[string]int // by object; 0 is none
	policies  int
	peers     int
	broken    bool // nothing can be read
	undecided bool
	text      string // in the verdict as well
	published bool
	asked     int
	// before and after happen while the policies are asked: before the facts
	// were read, and after.
	before, after func()
}

func (w *world) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if w.broken {
		return errors.New("the cache is not there")
	}
	kind := "service"
	if _, is := into.(*corev1.Namespace); is {
		kind = "namespace"
	}
	version := w.versions[kind]
	if version == 0 {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	}
	into.SetUID(types.UID(kind))
	into.SetResourceVersion(fmt.Sprint(version))
	return nil
}

func (w *world) export() *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "export", ResourceVersion: "1",
		Annotations: map[string]string{"version": fmt.Sprint(w.versions["export"])},
	}}
}

// Admit gives a verdict that shows all that it rests on.
func (w *world) Admit(_ context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
	w.asked++
	if w.before != nil {
		w.before()
	}
	out := decision.Verdict{Outcome: decision.Denied, Digest: w.digest(), Violations: []decision.Violation{{
		Message: fmt.Sprint(export.Annotations, w.versions["service"], w.versions["namespace"], w.peers, w.published) + w.text,
	}}, Publication: decision.Publication{Published: w.published}}
	if w.undecided {
		out = decision.Verdict{Outcome: decision.NotEvaluated, Problem: fmt.Sprint("attempt ", w.asked)}
	}
	if w.after != nil {
		w.after()
	}
	return out
}

func (w *world) isPublished(context.Context, *mcsv1beta1.ServiceExport) (decision.Publication, error) {
	if w.broken {
		return decision.Publication{}, errors.New("the exchange is not there")
	}
	return decision.Publication{Published: w.published}, nil
}

func (w *world) digest() string { return fmt.Sprint("policies ", w.policies) }

func (w *world) cache() *PolicyCache {
	return &PolicyCache{Evaluate: w.Admit, Reader: w, Policies: w.digest, Published: w.isPublished, Findings: findings.New()}
}

func newWorld() *world {
	return &world{versions: map[string]int{"export": 1, "service": 1, "namespace": 1}}
}

// Whatever changes, in whatever order: the remembered verdict is the one that
// would be reached now.
func TestAVerdictIsNeverStale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		c := w.cache()
		next := 2
		change := func(what string) {
			switch what {
			case "policies":
				w.policies = 1 - w.policies // and back again
			case "published":
				w.published = !w.published
			case "peers":
				w.peers++
				c.PeersChanged()
			case "gone":
				w.versions["service"] = 0
			case "nothing":
			default:
				w.versions[what] = next
				next++
			}
		}
		kinds := rapid.SampledFrom([]string{"export", "service", "namespace", "policies", "peers", "published", "gone", "nothing", "nothing", "nothing"})
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			change(kinds.Draw(t, "change"))
			w.undecided = rapid.IntRange(0, 4).Draw(t, "undecided") == 0
			before, after := kinds.Draw(t, "change before the facts are read"), kinds.Draw(t, "change after that")
			w.before, w.after = func() { change(before) }, func() { change(after) }
			c.Admit(t.Context(), w.export())
			w.before, w.after, w.undecided = nil, nil, false
			got, want := c.Admit(t.Context(), w.export()), w.Admit(t.Context(), w.export())
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("got %+v, want %+v", got, want)
			}
		}
	})
}

func TestPoliciesAreAskedOnceForWhatStaysTheSame(t *testing.T) {
	w := newWorld()
	c := w.cache()
	for n := range 5 {
		export := w.export()
		export.ResourceVersion = fmt.Sprint(n + 1) // Comity wrote the status
		export.Status.Conditions = []metav1.Condition{{Type: "Ready", Message: fmt.Sprint(n)}}
		c.Admit(t.Context(), export)
	}
	if w.asked != 1 {
		t.Errorf("asked %d times, want once", w.asked)
	}
	c.Forget(client.ObjectKeyFromObject(w.export()))
	if len(c.kept) != 0 {
		t.Error("remembers an export that is gone")
	}
}

func TestWhatCannotBeToldApartIsNotRemembered(t *testing.T) {
	for name, spoil := range map[string]func(w *world, export *mcsv1beta1.ServiceExport){
		"a verdict that was not reached":  func(w *world, _ *mcsv1beta1.ServiceExport) { w.undecided = true },
		"an export that was never stored": func(_ *world, e *mcsv1beta1.ServiceExport) { e.UID = "" },
		"a verdict of many megabytes":     func(w *world, _ *mcsv1beta1.ServiceExport) { w.text = strings.Repeat("x", maxVerdict) },
		"objects that cannot be read":     func(w *world, _ *mcsv1beta1.ServiceExport) { w.broken = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			c, export := w.cache(), w.export()
			spoil(w, export)
			c.Admit(t.Context(), export)
			c.Admit(t.Context(), export)
			if w.asked != 2 || len(c.kept) != 0 {
				t.Errorf("asked %d times, remembers %d", w.asked, len(c.kept))
			}
		})
	}
}
