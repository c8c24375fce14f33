// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/loop/internal/memory"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

func contestant(o plan.Object) memory.Object {
	return memory.Object{Kind: o.GetObjectKind().GroupVersionKind().Kind, Name: o.GetName()}
}

// digest changes with anything that is wanted of an object.
func digest(o plan.Object) string {
	content, err := json.Marshal(o)
	if err != nil {
		return "" // apply will say what is wrong with it
	}
	sum := sha256.Sum256(content)
	return string(sum[:8])
}

// unless leaves out the actions on objects that somebody else keeps changing
// back, until it is time to answer.
func (i *importer) unless(key types.NamespacedName, actions []plan.Action) []plan.Action {
	if disputes, _ := i.contest.Disputes(key); len(disputes) == 0 {
		return actions
	}
	var out []plan.Action
	for _, a := range actions {
		if a.Verb == plan.Delete || i.contest.Wait(key, contestant(a.Object), digest(a.Object)) == 0 {
			out = append(out, a)
		}
	}
	return out
}

// fought notes what was applied, to find out what is changed back.
func (i *importer) fought(in *plan.ImportInput, actions []plan.Action, applied []plan.Object) {
	for _, a := range actions {
		if a.Verb == plan.Delete {
			i.contest.Forget(in.Key, contestant(a.Object))
			continue
		}
		if len(applied) == 0 {
			return // this one failed, and those after it wait
		}
		applied = applied[1:]
		version, by := before(in.Current, contestant(a.Object))
		i.contest.Applied(in.Key, contestant(a.Object), digest(a.Object), version, by)
	}
}

// before is the version of an object as it was planned for, and the field
// manager that changed it last beside Comity; both empty if there was none.
func before(current plan.Current, object memory.Object) (version, by string) {
	var found metav1.Object
	switch object.Kind {
	case "Service":
		for _, s := range current.Services {
			if s.Name == object.Name {
				found = s
			}
		}
	case "EndpointSlice":
		for _, s := range current.Slices {
			if s.Name == object.Name {
				found = s
			}
		}
	default:
		if current.Import != nil {
			found = current.Import
		}
	}
	if found == nil {
		return "", ""
	}
	var latest metav1.Time
	for _, entry := range found.GetManagedFields() {
		if entry.Manager == model.FieldOwner || entry.Subresource != "" {
			continue
		}
		if at := entry.Time; by == "" || at != nil && latest.Before(at) {
			by = entry.Manager
			if at != nil {
				latest = *at
			}
		}
	}
	return found.GetResourceVersion(), by
}

// disputes are the problems with contested objects, and how soon to look again.
func (i *importer) disputes(key types.NamespacedName) (problems []model.Problem, again time.Duration) {
	disputes, again := i.contest.Disputes(key)
	for _, d := range disputes {
		who := "something"
		if d.By != "" {
			who = fmt.Sprintf("field manager %q", d.By)
		}
		problems = append(problems, model.Problem{Reason: model.ReasonContested, Message: fmt.Sprintf(
			"%s %s/%s is changed again and again by %s, so it is put right ever more rarely, at least every 5 minutes; let only Comity write to it",
			d.Object.Kind, key.Namespace, d.Object.Name, who)})
	}
	return problems, again
}

// announce tells, once, of what keeps anything from being imported where there
// is no ServiceImport of Comity's on which a reader would find it: by an event
// on the object that is in the way.
func (i *importer) announce(key types.NamespacedName, current plan.Current, problems []model.Problem) {
	if current.Import != nil && model.IsManaged(current.Import) || len(problems) == 0 {
		i.announced.Delete(key)
		return
	}
	var told string
	for _, p := range problems {
		if inTheWay(p.Reason, current) != nil {
			told += p.Message
		}
	}
	if before, known := i.announced.Swap(key, told); told == "" || known && before == told {
		return
	}
	for _, p := range problems {
		if object := inTheWay(p.Reason, current); object != nil {
			i.Recorder.Eventf(object, nil, corev1.EventTypeWarning, p.Reason, "Import", "%s", model.Bound(p.Message, 1000))
		}
	}
}

// inTheWay is the foreign object that a problem is about; nil if it is about none.
func inTheWay(reason string, current plan.Current) plan.Object {
	switch reason {
	case model.ReasonForeignImport:
		if current.Import != nil {
			return current.Import
		}
	case model.ReasonNameTaken:
		for _, s := range current.Services {
			if !model.IsManaged(s) {
				return s
			}
		}
		for _, s := range current.Slices {
			if !model.IsManaged(s) {
				return s
			}
		}
	}
	return nil
}
