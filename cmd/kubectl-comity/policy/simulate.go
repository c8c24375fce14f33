// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/preview"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

const simulateLong = `Show what ExportPolicies, each alone, would do in clusters as they are now, by a dry run.

The exit code is 0 if nothing would change, 1 if something would (a new warning does
not count), and 2 if a policy cannot be used, or a cluster cannot say all of it.
See "Simulate" in policies/README.md.`

// simulation is what the command prints with -o json.
type simulation struct {
	// Changes is true if anything but warnings would change.
	Changes  bool               `json:"changes"`
	Clusters []simulatedCluster `json:"clusters"`
}

type simulatedCluster struct {
	Context string `json:"context"`
	// Warnings are what the cluster says of each policy, or that nothing would change.
	Warnings []string `json:"warnings"`
}

// noChange follows the name of a policy of which a cluster says nothing.
const noChange = "] nothing would change"

func newSimulate(env *command.Env) *cobra.Command {
	var output command.Output
	var paths, without []string
	const example = "  kubectl comity policy simulate a b -f policies/\n" +
		"  kubectl comity policy simulate a b -f policy.yaml -o json\n" +
		"  kubectl comity policy simulate --without namespace-sameness"
	run := func(ctx context.Context, env *command.Env, args []string) error {
		attempts, err := readAttempts(paths, without)
		if err != nil {
			return err
		}
		targets, err := env.OpenAll(ctx, args)
		if err != nil {
			return err
		}
		result, incomplete := simulation{}, false
		for _, target := range targets {
			cluster, err := simulateIn(ctx, target, attempts)
			if err != nil {
				return target.Errorf("%w", err)
			}
			result.Clusters = append(result.Clusters, cluster)
			for _, line := range cluster.Warnings {
				result.Changes = result.Changes || preview.IsChange(line)
				incomplete = incomplete || preview.IsIncomplete(line) && !strings.HasSuffix(line, noChange)
			}
		}
		err = output.Print(env.Out, "PolicySimulation", result, func() {
			for _, cluster := range result.Clusters {
				env.Printf("context %s:\n  %s\n", cluster.Context, strings.Join(cluster.Warnings, "\n  "))
			}
		})
		return cmp.Or(err, exitCode(incomplete, result.Changes))
	}
	cmd := env.Command("simulate [CONTEXT...]", "Show what policies would do in clusters as they are now", simulateLong, example, 0, run)
	output.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringArrayVarP(&paths, "filename", "f", nil, "A manifest of ExportPolicies, a folder of a policy, or a folder of such; may be repeated")
	flags.StringSliceVar(&without, "without", nil, "Names of ExportPolicies to try as if they denied nothing")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

// never is a module that denies nothing.
const never = "package comity.policies.simulated\n\ndeny contains {\"msg\": \"never\"} if false\n"

// readAttempts reads the policies to try; those without which a cluster is tried have the module never.
func readAttempts(paths, without []string) (attempts []*v1alpha1.ExportPolicy, err error) {
	found, err := source.Read(paths...)
	if err != nil {
		return nil, err
	}
	for _, policy := range found {
		attempts = append(attempts, policy.Object)
	}
	for _, name := range without {
		attempts = append(attempts, &v1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ExportPolicySpec{Rego: never}})
	}
	if len(attempts) == 0 {
		return nil, errors.New("there is nothing to try: no ExportPolicy is given; expected a file or folder with -f, or --without")
	}
	return attempts, nil
}

// simulateIn makes the attempts in one cluster.
func simulateIn(ctx context.Context, target *command.Target, attempts []*v1alpha1.ExportPolicy) (simulatedCluster, error) {
	cluster := simulatedCluster{Context: target.Context}
	config := rest.CopyConfig(target.REST)
	config.WarningHandler = &cluster
	warned, err := command.NewTarget(target.Context, config)
	if err != nil {
		return cluster, err
	}
	c := client.NewDryRunClient(warned.Client)
	if err := requireWebhook(ctx, c); err != nil {
		return cluster, err
	}
	cluster.Warnings = nil
	for _, one := range attempts {
		before, policy := len(cluster.Warnings), &v1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: one.Name}}
		_, err := controllerutil.CreateOrUpdate(ctx, c, policy, func() error {
			switch {
			case one.Spec.Rego != never:
				policy.Spec = one.Spec
			case policy.UID == "":
				return fmt.Errorf("flag --without: there is no ExportPolicy %s", one.Name)
			default:
				policy.Spec.Rego = never
			}
			return nil
		})
		if err != nil {
			return cluster, err
		}
		if len(cluster.Warnings) == before {
			cluster.Warnings = append(cluster.Warnings, "["+one.Name+noChange)
		}
	}
	return cluster, nil
}

// requireWebhook has a webhook refuse an ExportPolicy without a rule. Where nothing checks
// ExportPolicies, each one would seem to change nothing.
func requireWebhook(ctx context.Context, c client.Client) error {
	err := c.Create(ctx, &v1alpha1.ExportPolicy{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "simulated-"}, Spec: v1alpha1.ExportPolicySpec{Rego: "package comity.policies.simulated\n"},
	})
	switch {
	case err == nil:
		return errors.New("no webhook checks ExportPolicies; expected a cluster in which Comity runs, with its webhooks")
	case apierrors.IsBadRequest(err):
		return nil
	}
	return err
}

// HandleWarningHeader implements rest.WarningHandler.
func (c *simulatedCluster) HandleWarningHeader(_ int, _, text string) {
	c.Warnings = append(c.Warnings, text)
}
