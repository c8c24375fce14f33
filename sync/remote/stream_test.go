// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"encoding/json"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

func asObject(t *testing.T, of any) (object map[string]any) {
	t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestAPeerThatStreamsIsAskedForNoPages(t *testing.T) {
	p := &peer{streams: true}
	c := connected(t, budget.Limits{}, p)
	await(t, "everything is read", c.Verified)
	p.change(func() {
		if p.lists["one"] > 0 {
			t.Errorf("%d lists are read by pages", p.lists["one"])
		}
	})
}

// What changes while a list is streamed follows in it.
func TestAStreamedListHasTheLastVersionOfEachObject(t *testing.T) {
	changed := exported(1)
	changed.Spec.Ports[0].Port, changed.ResourceVersion = 81, "40"
	p := &peer{streams: true, intercept: func(w http.ResponseWriter, r *http.Request, path string) bool {
		if requestOf(path, r) != "stream "+exportsOfB {
			return false
		}
		for i := range 3 {
			event(asJSON(w), "ADDED", path, asObject(t, exported(i)))
		}
		event(w, "MODIFIED", path, asObject(t, changed))
		event(w, "DELETED", path, asObject(t, exported(2)))
		event(w, "BOOKMARK", path, initialEventsEnd("50"))
		return true
	}}
	c := connected(t, budget.Limits{Exports: 3}, p)
	await(t, "everything is read", c.Verified)
	keys := c.Keys()
	if export, _ := c.Export(types.NamespacedName{Namespace: "shop", Name: "web-1"}); len(keys) != 2 || export == nil || export.Ports[0].Port != 81 {
		t.Errorf("read: %v, web-1 is %+v", keys, export)
	}
}

// Pages show what is wrong, and whether anything is.
func TestAStreamThatFailsIsFollowedByPages(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"the list does not end": func(w http.ResponseWriter, _ *http.Request) {
			event(asJSON(w), "ADDED", exportsOfB, asObject(t, exported(7)))
		},
		"an error": func(w http.ResponseWriter, _ *http.Request) { status(asJSON(w), 500, "InternalError") },
		"an error in an event": func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(asJSON(w)).Encode(map[string]any{"type": "ERROR", "object": map[string]any{"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired"}})
		},
		"an object of another kind": func(w http.ResponseWriter, _ *http.Request) {
			event(asJSON(w), "ADDED", "comity-b/memberrecords", asObject(t, memberB()))
		},
		"a field of another type": func(w http.ResponseWriter, _ *http.Request) {
			event(asJSON(w), "ADDED", exportsOfB, map[string]any{"metadata": map[string]any{"name": 7}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &peer{streams: true, answer: func(w http.ResponseWriter, path string, watch bool) bool {
				if watch || path != exportsOfB {
					return false
				}
				list(w, exports(3))
				return true
			}}
			p.intercept = func(w http.ResponseWriter, r *http.Request, path string) bool {
				if requestOf(path, r) != "stream "+exportsOfB {
					return false
				}
				answer(w, r)
				return true
			}
			c := connected(t, budget.Limits{Exports: 3}, p)
			await(t, "everything is read", c.Verified)
			if keys, problem := c.Keys(), c.State().Problem; len(keys) != 3 || problem != (Failure{}) {
				t.Errorf("read: %v, problem: %v", keys, problem)
			}
		})
	}
}
