// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

// annotate gives the Secret of b these annotations, in pairs.
func (w *world) annotate(pairs ...string) {
	s := w.server.secret()
	for i := 0; i < len(pairs); i += 2 {
		s.Annotations[pairs[i]] = pairs[i+1]
	}
	w.secrets(s)
}

func TestOnlyAcceptedNamespacesAreImported(t *testing.T) {
	w := newWorld(t)
	w.server.put("exportrecords", record(shared, 1))
	w.server.put("endpointslices", sliceOf(1, "10.1.0.1"))
	w.join()
	key, other := keyOf(1), types.NamespacedName{Namespace: "kitchen", Name: "web"}
	accept := func(text string) { w.annotate(model.AnnotationAcceptedNamespaces, text) }
	state := func() string {
		out := []string{}
		if len(w.set.Exports(key)) > 0 {
			out = append(out, "export")
		}
		if slices, _ := w.set.Slices("b", key); len(slices) > 0 {
			out = append(out, "slices")
		}
		for _, r := range w.set.Refusals(key) {
			out = append(out, r.Reason+" "+string(r.ExportUID)+" by "+r.Secret.String())
		}
		if slices.Contains(w.set.NotAccepted(key), "b") {
			out = append(out, "not accepted")
		}
		if slices.Contains(w.set.NotAccepted(other), "b") {
			out = append(out, "other not accepted")
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct{ list, want, event string }{
		{"*", "export, slices", ""},
		{"sho*", "export, slices, other not accepted", ""},
		{"kitchen", "NamespaceNotAccepted uid by comity-system/peer-b, not accepted", ""},
		{"", "NamespaceNotAccepted uid by comity-system/peer-b, not accepted", "Secret comity-system/peer-b, annotation comity.dev/accepted-namespaces: names no namespace"},
		{"shop,", "NamespaceNotAccepted uid by comity-system/peer-b, not accepted", `item 2, "", is empty`},
		{"shop,kube-system", "export, slices, other not accepted", `item 2, "kube-system", is reserved`},
		{"shop,**", "export, slices, other not accepted", `item 2, "**", has "**"`},
		{"kitchen,shop", "export, slices", ""},
	} {
		told := w.times("cluster b")
		before := state()
		w.kinds()
		accept(c.list)
		if got := state(); got != c.want {
			t.Errorf("%q: %s; want %s", c.list, got, c.want)
		}
		if before != c.want && w.times("cluster b") == told {
			t.Errorf("%q: told %d times", c.list, w.times("cluster b")-told)
		}
		if c.event == "" {
			if got := w.kinds(); len(got) > 0 {
				t.Errorf("%q: events %q", c.list, got)
			}
			continue
		}
		w.says("Warning InvalidAcceptedNamespaces", c.event, "remedy: ")
		if s := w.set.States()[0]; s.Reason != ReasonInvalidAcceptedNamespaces || !s.Synced {
			t.Errorf("%q: %+v", c.list, s)
		}
	}
	w.secrets(w.server.secret())
	if got := state(); got != "export, slices" {
		t.Errorf("without a list: %s", got)
	}
}

func TestAListThatCannotBeReadAtAStartLeavesAllAsItIs(t *testing.T) {
	for _, pair := range [][2]string{{model.AnnotationAcceptedNamespaces, "**"}, {model.AnnotationAcceptedCIDRs, "10.1.0.0"}} {
		w := newWorld(t)
		w.server.put("exportrecords", record(shared, 1))
		w.annotate(pair[0], pair[1])
		w.await("it is connected", func() bool {
			w.set.mu.Lock()
			defer w.set.mu.Unlock()
			return w.set.members["b"].readable
		})
		if _, known := w.set.Filter("b"); w.member().Synced || known != (pair[0] == model.AnnotationAcceptedNamespaces) || len(w.set.NotAccepted(keyOf(1))) > 0 {
			t.Errorf("%s: %+v", pair, w.member())
		}
		w.says("Warning Invalid", pair[0], "the peer is not read and what was imported from it stays")
		w.secrets(w.server.secret())
		if !w.member().Synced || len(w.set.Exports(keyOf(1))) != 1 {
			t.Errorf("%s: once corrected: %+v", pair, w.member())
		}
	}
}

// FAULT 32: what is accepted from a peer is narrowed while the peer cannot be read.
func TestWhatIsAcceptedFromAPeerThatIsNotReadIsKnown(t *testing.T) {
	w := exporting(t, 1)
	w.set.opts.LocalCluster = func() model.LocalCluster {
		return model.LocalCluster{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}
	}
	w.server.put("memberrecords", memberRecord("uid-other"))
	w.await("it is not read", func() bool { return !w.member().Synced })
	told := w.times("cluster b")
	w.annotate(model.AnnotationAcceptedCIDRs, "10.1.2.0/24", model.AnnotationAcceptedNamespaces, "kitchen")
	want := exchange.Filter{Accepted: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}}
	got, known := w.set.Filter("b")
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" || !known {
		t.Errorf("known %v (-want +got):\n%s", known, diff)
	}
	if !slices.Contains(w.set.NotAccepted(keyOf(0)), "b") || w.times("cluster b") != told+1 {
		t.Errorf("told %d times", w.times("cluster b")-told)
	}
	if _, known := w.set.Filter("c"); known {
		t.Error("a cluster that is no member has a filter")
	}
}
