// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
	// confirm are the commands that end what a replaced cluster does not publish.
	confirm []string
}

func (r *report) step(step join.Step) {
	if step.Verb != join.Waiting {
		r.steps = append(r.steps, step)
	}
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
	for _, verb := range []join.Verb{join.Created, join.Changed, join.Deleted, join.Unchanged, join.Kept, join.Pending} {
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
		for _, command := range r.confirm {
			r.env.Printf("To remove what the new cluster does not publish, once it has all its manifests: %s\n", command)
		}
	}
}

// replacements shows which clusters are replaced, and what is imported from those before.
func (r *report) replacements(ctx context.Context, all []join.Replacement, sites []site) error {
	for _, replaced := range all {
		at := slices.IndexFunc(sites, func(s site) bool { return s.agent.ID == replaced.Holder })
		imports, err := join.Imports(ctx, sites[at].target.Client)
		if err != nil {
			return sites[at].target.Errorf("%w", err)
		}
		r.env.Printf("In cluster %s, cluster %s is replaced: UID %s becomes %s. Imports with an export of the cluster before: %d. They stay until the new cluster publishes these exports\n",
			replaced.Holder, replaced.Peer, replaced.Old, replaced.New, len(join.From(imports, replaced.Peer)))
		r.confirm = append(r.confirm, fmt.Sprintf("kubectl comity confirm missing %s --context %s", replaced.Peer, sites[at].target.Context))
	}
	return nil
}

// printObjects prints what a join would apply, for each cluster in order.
func (o *options) printObjects(prepared *join.Prepared) error {
	scheme, err := command.NewScheme()
	if err != nil {
		return err
	}
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
	return o.output.PrintObjects(o.env.Out, scheme, all)
}
