// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

const long = `Show what ExportPolicies would do in clusters as they are now, and write nothing.

Files have the form that kubectl comity policy check describes. In each cluster,
the policies of the files replace those of the same name, and the others stay; with
--replace, they replace all policies. The output has a line for each export, and each
import from another cluster, that would be withdrawn, denied, allowed or no longer
evaluated.

The command reads the namespaces and exports of a peer from the peer, and what is
published in a hub from the hub, if their contexts are given. Otherwise it lists what
is not known, and policies get it as "unknown".

EFFECT is one of:
  Withdraw   it is published or imported, and would no longer be, after the time that
             is shown
  Deny       it is not published or imported, and would be denied
  Exclude    it stays published, and the clusters that are shown would lose it
  Block      the policies could not be evaluated for it
  Allow      it would no longer be denied, or could be evaluated again
  Include    the clusters that are shown would get it as well
  Warn       it would get a new warning, and nothing else would change

The exit code is 0 if nothing would change, 1 if something would (a new warning does
not count), and 2 if a policy cannot be used or a cluster cannot be read.`

// options are the flags.
type options struct {
	command.Output
	paths   []string
	replace bool
	without []string
}

// New gives the command simulate.
func New(env *command.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "simulate [CONTEXT...]",
		Short: "Show what policies would do in clusters as they are now",
		Long:  long,
		Example: "  kubectl comity policy simulate -f policies/ --context a,b\n" +
			"  kubectl comity policy simulate a b -f policy.yaml -o json\n" +
			"  kubectl comity policy simulate --without namespace-sameness",
		ValidArgsFunction: env.CompleteContexts(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			if len(args) == 0 && env.Context != "" {
				args = strings.Split(env.Context, ",")
			}
			return o.run(cmd.Context(), env, args)
		},
	}
	o.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.paths, "filename", "f", nil, "A manifest of ExportPolicies, a folder of a policy, or a folder of such; may be repeated")
	flags.BoolVar(&o.replace, "replace", false, "Replace all policies of the cluster with those of the files")
	flags.StringSliceVar(&o.without, "without", nil, "Names of ExportPolicies to leave out, as if they did not exist")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

// readPolicies reads the policies to try; the library, which the plugin has itself, is
// left out.
func readPolicies(paths []string) ([]*v1alpha1.ExportPolicy, error) {
	found, err := source.Read(paths...)
	if err != nil {
		return nil, err
	}
	var policies []*v1alpha1.ExportPolicy
	at := map[string]string{}
	for _, policy := range found {
		if policy.Library() {
			continue
		}
		if first, twice := at[policy.Name()]; twice {
			return nil, fmt.Errorf("%s: the name %s is also that of the policy in %s; expected each policy once", policy.Path, policy.Name(), first)
		}
		at[policy.Name()] = policy.Path
		policies = append(policies, policy.Object)
	}
	return policies, nil
}

func (o options) run(ctx context.Context, env *command.Env, contexts []string) error {
	given, err := readPolicies(o.paths)
	if err != nil {
		return command.Refused(err)
	}
	if len(given) == 0 && !o.replace && len(o.without) == 0 {
		return command.Refusedf("there is nothing to try: no ExportPolicy is given; expected a file or folder with -f, or --without")
	}
	targets, err := env.OpenAll(ctx, contexts)
	if err != nil {
		return err
	}
	clusters, err := readAll(ctx, targets)
	if err != nil {
		return command.Refused(err)
	}
	change := policyChange{given: given, replace: o.replace, without: o.without, now: time.Now()}
	result := Result{Clusters: []Cluster{}}
	for _, c := range clusters {
		simulated, err := simulate(ctx, c, change)
		if err != nil {
			return command.Refused(c.target.Errorf("%w", err))
		}
		result.Clusters = append(result.Clusters, simulated)
		result.Changes = result.Changes || simulated.changes
	}
	if o.Structured() {
		err = o.Print(env.Out, "PolicySimulation", result)
	} else {
		err = show(env.Out, result)
	}
	if err == nil && result.Changes {
		err = command.Printed(command.ExitProblem)
	}
	return err
}
