// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// driftLimit is how many corrections of a derived object that something else changed are made
// at once. After these, one is made in three times Options.Retry. A user who edits by hand is slower.
const driftLimit = 5

// driftLimiter limits how often Comity corrects a derived object that something
// else keeps changing back, another controller for example. To correct it at once
// each time would load both controllers and the API server without end.
type driftLimiter struct {
	clock   clock.Clock
	pause   time.Duration // between two corrections, once the limit is reached
	mu      sync.Mutex
	imports *cache.Expiring // types.NamespacedName → map[driftObject]*drift
}

// driftObject is one derived object of an import, in the import's namespace.
type driftObject struct{ kind, name string }

// drift is what is remembered of one object that was applied.
type drift struct {
	desired  plan.Object // what was applied last; nil until it is applied again
	replaced string      // the resourceVersion of the object that this replaced
	tokens   *rate.Limiter
	until    time.Time // it is reported as contested
	by       string    // the field manager that changed the object last
}

func newDriftLimiter(clock clock.Clock, pause time.Duration) *driftLimiter {
	return &driftLimiter{clock: clock, pause: pause, imports: cache.NewExpiringWithClock(clock)}
}

// of is what is remembered of the objects of an import; nil for nothing. It needs mu.
func (l *driftLimiter) of(owner types.NamespacedName) map[driftObject]*drift {
	found, _ := l.imports.Get(owner)
	objects, _ := found.(map[driftObject]*drift)
	return objects
}

// allowed leaves out the actions on objects whose correction has to wait. An
// action that applies something new never waits.
func (l *driftLimiter) allowed(owner types.NamespacedName, actions []plan.Action) []plan.Action {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, objects := l.clock.Now(), l.of(owner)
	return model.Without(actions, func(a plan.Action) bool {
		d := objects[objectOf(a.Object)]
		return a.Verb != plan.Delete && d != nil && d.tokens.TokensAt(now) < 1 && equality.Semantic.DeepEqual(d.desired, a.Object)
	})
}

// applied notes which of the actions were applied.
func (l *driftLimiter) applied(in *plan.ImportInput, actions []plan.Action, applied []plan.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	done := sets.New(model.Map(applied, objectOf)...)
	for _, a := range actions {
		switch object := objectOf(a.Object); {
		case a.Verb == plan.Delete:
			delete(l.of(in.Key), object) // Comity itself deleted it
		case done.Has(object):
			version, by := lastChange(in.Current, object)
			if version == "" || by != "" { // else nobody but Comity wrote it
				l.note(in.Key, a.Object, version, by)
			}
		}
	}
}

// note remembers that desired was applied to an object of which version existed
// (empty if it was created), changed last by a field manager. The same version
// twice is a cache that lags behind, not a change. What is applied for the first time is
// not kept: most objects are created once, and nobody changes them. It needs mu.
func (l *driftLimiter) note(owner types.NamespacedName, desired plan.Object, version, by string) {
	now, object, objects := l.clock.Now(), objectOf(desired), l.of(owner)
	if objects == nil {
		objects = map[driftObject]*drift{}
	}
	l.imports.Set(owner, objects, driftLimit*l.pause) // for as long as anything of it counts
	d := objects[object]
	switch isKnown := d != nil; {
	case !isKnown, d.desired != nil && !equality.Semantic.DeepEqual(d.desired, desired):
		objects[object] = &drift{replaced: version, tokens: rate.NewLimiter(rate.Every(l.pause), driftLimit)}
		if isKnown {
			objects[object].desired = desired
		}
	case version == "" || version != d.replaced:
		d.desired, d.replaced, d.by = desired, version, by
		if d.tokens.AllowN(now, 1); d.tokens.TokensAt(now) < 1 {
			d.until = now.Add(driftLimit * l.pause)
		}
	}
}

// contested are problems with the objects of an import whose correction is delayed, sorted,
// and how soon that may be different; 0 if there are none.
func (l *driftLimiter) contested(owner types.NamespacedName) (contested []model.Problem, again time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	for object, d := range l.of(owner) {
		next := d.until.Sub(now)
		if next <= 0 {
			continue
		}
		who := "something"
		if d.by != "" {
			who = fmt.Sprintf("field manager %q", d.by)
		}
		contested = append(contested, model.Problemf(model.ReasonContested, "",
			"%s %s/%s is repeatedly changed by %s, so Comity corrects it less often; let only Comity write to it",
			object.kind, owner.Namespace, object.name, who))
		if missing := 1 - d.tokens.TokensAt(now); missing > 0 {
			next = time.Duration(missing*float64(l.pause)) + time.Millisecond
		}
		again = model.Sooner(again, next)
	}
	slices.SortFunc(contested, func(a, b model.Problem) int { return cmp.Compare(a.Message, b.Message) })
	return contested, again
}

func objectOf(o plan.Object) driftObject {
	return driftObject{kind: o.GetObjectKind().GroupVersionKind().Kind, name: o.GetName()}
}

// lastChange is the resourceVersion of an object as it was planned for, and the
// field manager that changed it last beside Comity; both empty if it did not exist.
func lastChange(current plan.Current, object driftObject) (version, by string) {
	var found metav1.ObjectMeta
	for _, s := range current.Services {
		if object == (driftObject{"Service", s.Name}) {
			found = s.ObjectMeta
		}
	}
	for _, s := range current.Slices {
		if object == (driftObject{"EndpointSlice", s.Name}) {
			found = s.ObjectMeta
		}
	}
	if current.Import != nil && object.kind == mcsv1beta1.ServiceImportKindName {
		found = current.Import.ObjectMeta
	}
	var latest *metav1.Time
	for _, entry := range found.ManagedFields {
		if entry.Manager != model.FieldOwner && entry.Subresource == "" && (by == "" || latest.Before(entry.Time)) {
			by, latest = entry.Manager, entry.Time
		}
	}
	return found.ResourceVersion, by
}
