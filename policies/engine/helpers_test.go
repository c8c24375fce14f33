// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// newEngine is an engine that a busy machine does not make fail, unless opts says so.
func newEngine(t interface {
	Helper()
	Fatal(args ...any)
}, opts engine.Options) *engine.Engine {
	t.Helper()
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
	}
	e := engine.New(opts)
	return e
}

// loaded is an engine with policies that all compile.
func loaded(t testing.TB, opts engine.Options, list ...engine.Policy) *engine.Engine {
	t.Helper()
	e := newEngine(t, opts)
	for _, result := range e.Load(list) {
		if result.Err != nil {
			t.Fatalf("policy %s: %v", result.Name, result.Err)
		}
	}
	return e
}

// denying is a policy that denies with this message if the body holds.
func denying(name, msg, body string) engine.Policy {
	return engine.Policy{Name: name, ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: fmt.Sprintf(`package comity.policies.%s

deny contains {"msg": %q, "field": "spec", "remedy": "None."} if {
	%s
}
`, name, msg, body)}}
}

// baselines are the policies that Comity ships.
func baselines(t testing.TB) []engine.Policy {
	t.Helper()
	found, err := source.Read("../../charts/comity/files/policies")
	if err != nil {
		t.Fatal(err)
	}
	var list []engine.Policy
	for _, b := range found {
		list = append(list, engine.FromObject(b.Object, time.Now()))
	}
	return list
}

// request is a CREATE in cluster a of ServiceExport shop/db, whose ClusterIP
// Service is there, with peers b, c, ...
func request(peers ...string) decision.Input {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "db", Labels: map[string]string{"app": "db"}}
	in := decision.Input{
		APIVersion:     decision.InputVersion,
		Operation:      decision.Create,
		Subject:        decision.SubjectServiceExport,
		UserInfo:       &decision.UserInfo{Username: "jane", Groups: []string{"devs"}},
		Object:         &mcsv1beta1.ServiceExport{ObjectMeta: meta},
		Service:        &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}},
		Namespace:      &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"comity.dev/identity": "shop-1"}}},
		Cluster:        "a",
		Scope:          decision.Scope{All: true},
		NamespaceScope: decision.Scope{All: true},
		EffectiveScope: decision.Scope{All: true},
		Peers:          map[string]decision.Peer{},
	}
	for _, id := range peers {
		in.Peers[id] = decision.Peer{Namespace: decision.PeerNamespace{
			Presence: decision.Present, Labels: map[string]string{"comity.dev/identity": "shop-1"},
		}}
	}
	return in
}

// destinations are the peers of the input in its effective scope, in groups as those of
// package facts.
func destinations(in decision.Input) (groups []decision.Destination) {
	for _, id := range slices.Sorted(maps.Keys(in.Peers)) {
		if !in.EffectiveScope.All && !slices.Contains(in.EffectiveScope.Clusters, id) {
			continue
		}
		namespace := in.Peers[id].Namespace
		same := slices.IndexFunc(groups, func(g decision.Destination) bool { return reflect.DeepEqual(g.Namespace, namespace) })
		if same < 0 {
			groups = append(groups, decision.Destination{Clusters: []string{id}, Namespace: namespace})
			continue
		}
		groups[same].Clusters = append(groups[same].Clusters, id)
	}
	return groups
}
