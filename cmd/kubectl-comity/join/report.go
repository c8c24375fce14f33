// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"strings"
	"time"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
)

// clusterAnnotation, on a printed object, names the cluster that it is for.
const clusterAnnotation = "comity.dev/cluster"

// report prints one line for every object, as it is written.
type report struct {
	env   *command.Env
	quiet bool
	start time.Time
	now   func() time.Time
	steps []join.Step
}

func (r *report) step(step join.Step) {
	r.steps = append(r.steps, step)
	if !r.quiet {
		r.env.Printf("[%5.1fs] %s\n", r.elapsed().Seconds(), step)
	}
}

func (r *report) elapsed() time.Duration { return r.now().Sub(r.start) }

// counts says how many objects were dealt with, by what became of them.
func (r *report) counts() string {
	count := map[join.Verb]int{}
	for _, step := range r.steps {
		count[step.Verb]++
	}
	var texts []string
	for _, verb := range []join.Verb{join.Created, join.Changed, join.Deleted, join.Unchanged, join.Kept} {
		if count[verb] > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", count[verb], verb))
		}
	}
	if len(texts) == 0 {
		return "nothing to do"
	}
	return strings.Join(texts, ", ")
}

func (r *report) summary(o *options, sites []site) {
	var contexts []string
	for _, s := range sites {
		contexts = append(contexts, s.target.Context)
	}
	after := fmt.Sprintf("%s in %.1f s", r.counts(), r.elapsed().Seconds())
	switch {
	case o.dryRun:
		r.env.Printf("\nDry run, nothing was written. Without --dry-run: %s.\n", after)
	case o.rotate:
		r.env.Printf("\nRotated the credentials of clusters %s: %s. The old tokens are refused within 10 s.\n", idsOf(sites), after)
	default:
		r.env.Printf("\nJoined clusters %s of clusterset %s: %s.\nNext: kubectl comity status %s\n", idsOf(sites), sites[0].agent.Set, after, strings.Join(contexts, " "))
	}
}

// printObjects prints what a join would apply, for each cluster in order.
func (o *options) printObjects(prepared *join.Prepared) error {
	var all []client.Object
	for _, part := range prepared.Objects() {
		id := string(part.Cluster)
		for _, object := range part.Objects {
			annotations := object.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[clusterAnnotation] = id
			object.SetAnnotations(annotations)
			all = append(all, object)
		}
	}
	return o.output.PrintObjects(o.env.Out, clientgoscheme.Scheme, all)
}
