// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package steps holds the steps of the demo, one function each.
//
// It takes a world and runs six steps in it: a refusal, imports, names, a
// conflict, a scope, and the end of all exports. A step checks what it shows,
// with bounded waits, and fails with what was expected. It creates only objects
// that a user can create with kubectl and test/demo/manifests.
package steps

import (
	"context"

	"github.com/comity-mcs/comity/test/demo/check"
	"github.com/comity-mcs/comity/test/demo/world"
)

// Step is one step.
type Step struct {
	// Name is what --stop-after takes, Title what is printed.
	Name, Title string
	Play        func(context.Context, *world.World) error
}

// Steps are all, in order. The later ones need what the earlier ones made.
func Steps(kind world.Kind) []Step {
	steps := []Step{
		{"programs", "Programs", func(ctx context.Context, w *world.World) error { return w.Build(ctx) }},
		{"clusters", "Three clusters", func(ctx context.Context, w *world.World) error { return w.Start(ctx) }},
		{"install", "Comity in each of them", func(ctx context.Context, w *world.World) error { return w.Install(ctx) }},
		{"join", "Joined, two by two", func(ctx context.Context, w *world.World) error { return w.Join(ctx) }},
		{"refusal", "1. An ExternalName Service cannot be exported", refusal},
		{"imports", "2. Exports become imports everywhere", imports},
		{"names", "3. CoreDNS answers for them", names},
		{"conflict", "4. A conflict shows on both sides, and clears", conflict},
		{"scope", "5. An export reaches its scope, and nobody else can read it", scope},
		{"end", "6. Without exports nothing is left", end},
	}
	if kind == world.InDocker {
		reach := Step{"reach", "3b. Pods reach them", reach}
		steps = append(steps[:7:7], append([]Step{reach}, steps[7:]...)...)
	}
	return steps
}

// folder has the manifests, as seen from the project's root.
const folder = "test/demo/manifests/"

// Where users' workloads are.
const (
	production = "production"
	one        = "cluster-1"
	two        = "cluster-2"
	three      = "cluster-3"
)

// What is exported.
var (
	web      = check.Export{Namespace: "default", Name: "web-service", Pods: map[string]int{one: 2}, Port: "http", Number: 80}
	stateful = check.Export{Namespace: "default", Name: "stateful-service", Headless: true, Pods: map[string]int{one: 2}, Port: "http", Number: 80}
	database = check.Export{Namespace: production, Name: "database", Pods: map[string]int{one: 1}, Port: "postgres", Number: 5432}
	api      = check.Export{Namespace: production, Name: "api", Pods: map[string]int{one: 3, two: 3, three: 3}, Number: 8080}
	internal = check.Export{Namespace: production, Name: "internal-api", Pods: map[string]int{one: 1}, Port: "http", Number: 8080, Scope: []string{two, three}}
	rings    = check.Export{Namespace: "database", Name: "cassandra", Headless: true, Pods: map[string]int{one: 2, two: 1}, Port: "cql", Number: 9042}
)

func exports() []check.Export {
	return []check.Export{web, stateful, database, api, rings, internal}
}
