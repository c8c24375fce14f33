// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apirand "k8s.io/apimachinery/pkg/util/rand"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// cleanTimeout bounds the removal of the namespaces, which begins even after an
// interruption.
const cleanTimeout = 90 * time.Second

const long = `Check that Services are reachable by their clusterset name, from every cluster to
every other.

In each cluster, the command creates a temporary namespace comity-verify-<random>
with a Pod of Comity's own image, a Service and a ServiceExport. Every cluster sends
requests to the Service of every cluster, over each IP family that both have. The
table shows the median time of a request.

The exit code is 1 if a Service was not reachable, or something could not be removed.`

// options are the flags.
type options struct {
	command.Output
	timeout time.Duration
}

// New gives the command verify.
func New(env *command.Env) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:               "verify CONTEXT CONTEXT...",
		Short:             "Check that a temporary Service of each cluster is reachable from every other",
		Long:              long,
		Example:           "  kubectl comity verify a b\n  kubectl comity verify a b c --timeout 5m -o json",
		ValidArgsFunction: env.CompleteContexts,
		Args:              cobra.MinimumNArgs(2),
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), env, args) },
	}
	o.AddFlags(cmd)
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "How long all checks may take together, without the final removal")
	return cmd
}

func (o options) run(ctx context.Context, env *command.Env, args []string) error {
	sites, err := agent.Sites(ctx, env, args)
	if err == nil {
		err = agent.Problems(sites) // before anything is made
	}
	if err != nil {
		return err
	}
	result := Result{Namespace: namespacePrefix + apirand.String(8)}
	var members []*member
	for i, s := range sites {
		m := &member{target: s.Target, agent: s.Agent, namespace: result.Namespace, service: serviceName(i)}
		members, result.Clusters = append(members, m), append(result.Clusters, m.id())
	}
	if !o.Structured() {
		env.Printf("Verifying in the temporary namespace %s\n", result.Namespace)
	}
	verifying, cancel := context.WithTimeout(ctx, o.timeout)
	result.Checks = verifyAll(verifying, members)
	cancel()
	result.LeftBehind = removeAll(ctx, members)
	if ctx.Err() != nil {
		return &command.Error{Code: command.ExitProblem, Err: fmt.Errorf("interrupted; left behind: %s", cmp.Or(strings.Join(result.LeftBehind, "; "), "nothing"))}
	}
	result.Passed = passed(result.Checks) && len(result.LeftBehind) == 0
	err = o.Print(env.Out, "Verification", result, func() { show(env.Out, result) })
	if err == nil && !result.Passed {
		err = command.Printed(command.ExitProblem)
	}
	return err
}

// verifyAll makes what is needed everywhere and then tries every way at once.
func verifyAll(ctx context.Context, members []*member) []Check {
	command.InParallel(members, func(_ int, m *member) {
		if err := m.target.Client.Create(ctx, newNamespace(m.namespace)); err != nil {
			m.failed, m.failedAt = m.target.Errorf("create namespace %s: %w", m.namespace, err), StageCreate
		}
	})
	// Only where the namespace is everywhere, no cluster is reported to lack it.
	command.InParallel(members, func(_ int, m *member) {
		if m.failed == nil {
			m.prepare(ctx)
		}
	})
	checks := make([][]Check, len(members)*len(members))
	command.InParallel(checks, func(i int, _ []Check) { checks[i] = members[i%len(members)].check(ctx, members[i/len(members)]) })
	return slices.Concat(checks...)
}

// removeAll removes all namespaces, even if ctx has ended, and says what it could not remove.
func removeAll(ctx context.Context, members []*member) (failed []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	command.InParallel(members, func(_ int, m *member) { m.failed = m.remove(ctx) })
	for _, m := range members {
		if m.failed != nil {
			failed = append(failed, m.failed.Error())
		}
	}
	return failed
}
