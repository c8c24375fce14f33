// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	// Warnings are what the cluster says of each policy, by its name; none: nothing would
	// change.
	Warnings map[string][]string `json:"warnings"`
}

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
			for _, lines := range cluster.Warnings {
				result.Changes = result.Changes || slices.ContainsFunc(lines, preview.IsChange)
				incomplete = incomplete || slices.ContainsFunc(lines, preview.IsIncomplete)
			}
		}
		err = output.Print(env.Out, "PolicySimulation", result, func() { result.print(env) })
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

// readAttempts reads the policies to try; one without Rego is the stored one, as if it denied
// nothing.
func readAttempts(paths, without []string) (attempts []*v1alpha1.ExportPolicy, err error) {
	found, err := source.Read(paths...)
	if err != nil {
		return nil, err
	}
	for _, policy := range found {
		if policy.Object.Spec.Rego == "" {
			return nil, fmt.Errorf("%s: spec.rego of ExportPolicy %s is not set; expected a module", policy.Path, policy.Name())
		}
		attempts = append(attempts, policy.Object)
	}
	for _, name := range without {
		attempts = append(attempts, &v1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for i, one := range attempts {
		if slices.ContainsFunc(attempts[:i], func(other *v1alpha1.ExportPolicy) bool { return other.Name == one.Name }) {
			return nil, fmt.Errorf("ExportPolicy %s is given twice; expected each policy once", one.Name)
		}
	}
	if len(attempts) == 0 {
		return nil, errors.New("there is nothing to try: no ExportPolicy is given; expected a file or folder with -f, or --without")
	}
	return attempts, nil
}

func (s simulation) print(env *command.Env) {
	for _, cluster := range s.Clusters {
		env.Printf("context %s:\n", cluster.Context)
		for _, name := range slices.Sorted(maps.Keys(cluster.Warnings)) {
			env.Printf("  %s\n", cmp.Or(strings.Join(cluster.Warnings[name], "\n  "), "["+name+"] nothing would change"))
		}
	}
}

// simulateIn makes the attempts in one cluster.
func simulateIn(ctx context.Context, target *command.Target, attempts []*v1alpha1.ExportPolicy) (simulatedCluster, error) {
	cluster := simulatedCluster{Context: target.Context, Warnings: map[string][]string{}}
	seen := &warnings{}
	config := rest.CopyConfig(target.REST)
	config.WarningHandler = seen
	warned, err := command.NewTarget(target.Context, config)
	if err != nil {
		return cluster, err
	}
	c := client.NewDryRunClient(warned.Client)
	if err := requireWebhook(ctx, c); err != nil {
		return cluster, err
	}
	for _, one := range attempts {
		seen.texts = []string{}
		policy := &v1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: one.Name}}
		_, err := controllerutil.CreateOrUpdate(ctx, c, policy, func() error {
			switch {
			case one.Spec.Rego != "":
				policy.Spec = one.Spec
			case policy.UID == "":
				return fmt.Errorf("flag --without: there is no ExportPolicy %s", one.Name)
			default:
				policy.Spec.Rego = "package comity.policies.simulated\n\ndeny contains {\"msg\": \"never\"} if false\n"
			}
			return nil
		})
		if err != nil {
			return cluster, err
		}
		cluster.Warnings[one.Name] = seen.texts
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

// warnings are those of the answers of an API server.
type warnings struct{ texts []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }
