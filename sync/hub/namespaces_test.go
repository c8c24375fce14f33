// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// answers is a hub that gives one answer to every question.
type answers struct {
	client.Client
	found corev1.Namespace
	err   error
	asked int
}

func (a *answers) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	a.asked++
	if a.err == nil {
		a.found.DeepCopyInto(into.(*corev1.Namespace))
	}
	return a.err
}

func exchangeNamespace(uid types.UID, from string) corev1.Namespace {
	var ns corev1.Namespace
	ns.Name, ns.UID, ns.Labels = "comity-a", uid, map[string]string{model.LabelExchangeFrom: from}
	return ns
}

func TestOnlyADefiniteAnswerChangesWhatIsKnown(t *testing.T) {
	resource := schema.GroupResource{Resource: "namespaces"}
	absent := apierrors.NewNotFound(resource, "comity-a")
	forbidden := apierrors.NewForbidden(resource, "comity-a", errors.New("no"))
	silent := errors.New("connection refused")
	there := exchangeNamespace("1", "a")
	for _, c := range []struct {
		name    string
		first   answers
		then    answers
		usable  bool
		uid     types.UID
		problem string // part of what is said
	}{
		{"there", answers{found: there}, answers{found: there}, true, "1", ""},
		{"there, then silent", answers{found: there}, answers{err: silent}, true, "1", ""},
		{"there, then forbidden, as while the hub starts", answers{found: there}, answers{err: forbidden}, true, "1", ""},
		{"there, then gone", answers{found: there}, answers{err: absent}, false, "", "does not exist"},
		{"there, then made anew", answers{found: there}, answers{found: exchangeNamespace("2", "a")}, true, "2", ""},
		{"there, then another's", answers{found: there}, answers{found: exchangeNamespace("1", "b")}, false, "1", "expected \"a\""},
		{"gone, then silent", answers{err: absent}, answers{err: silent}, false, "", "does not exist"},
		{"gone, then there", answers{err: absent}, answers{found: there}, true, "1", ""},
		{"never answered", answers{err: silent}, answers{err: silent}, false, "", "cannot be read: connection refused"},
		{"forbidden from the start", answers{err: forbidden}, answers{err: forbidden}, false, "", "run kubectl comity join"},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			n := &Hub{opts: Options{Self: "a", CheckInterval: time.Second}, now: func() time.Time { return now }, known: map[string]namespaceState{}}
			n.Client = &c.first
			n.readNamespace(t.Context(), "comity-a")
			now = now.Add(presentFor * time.Second)
			n.Client = &c.then
			got := n.readNamespace(t.Context(), "comity-a")
			if got.usable() != c.usable || got.uid != c.uid {
				t.Errorf("got %+v, want usable %t and UID %q", got, c.usable, c.uid)
			}
			if said := got.problem; !c.usable && !strings.Contains(said, c.problem) {
				t.Errorf("says %q, want %q", said, c.problem)
			}
		})
	}
}

func TestTheHubIsAskedSeldom(t *testing.T) {
	now := time.Unix(1000, 0)
	hub := &answers{found: exchangeNamespace("1", "a")}
	n := &Hub{opts: Options{Self: "a", CheckInterval: time.Second}, Client: hub, now: func() time.Time { return now }, known: map[string]namespaceState{}}
	for range 100 {
		n.readNamespace(t.Context(), "comity-a")
	}
	if hub.asked != 1 {
		t.Errorf("asked %d times", hub.asked)
	}
	n.expire("comity-a")
	n.readNamespace(t.Context(), "comity-a")
	if hub.asked != 2 {
		t.Errorf("in doubt, asked %d times", hub.asked)
	}
	hub.err = apierrors.NewNotFound(schema.GroupResource{}, "comity-a")
	now = now.Add(presentFor * time.Second)
	n.readNamespace(t.Context(), "comity-a")
	now = now.Add(absentFor * time.Second)
	n.readNamespace(t.Context(), "comity-a")
	if hub.asked != 4 {
		t.Errorf("of one that is not there, asked %d times", hub.asked)
	}
}
