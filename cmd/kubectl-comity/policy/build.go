// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/source"
)

const buildLong = `Print the ExportPolicies that folders of policies are, for kubectl apply -f -.

Comments in params.yaml and policy.yaml are kept. The policies are compiled first; the
exit code is 1, and nothing is printed, if one does not compile or is not formatted.`

func newBuild(env *command.Env) *cobra.Command {
	return command.New("build PATH...", "Print the ExportPolicies of folders of policies", buildLong,
		"  kubectl comity policy build owner-required | kubectl apply --dry-run=server -f -",
		cobra.MinimumNArgs(1), func(_ context.Context, args []string) error {
			all, err := source.Read(args...)
			if err != nil {
				return err
			}
			result, err := Check(all, false)
			if err != nil {
				return err
			}
			if len(result.Findings) > 0 {
				_, _ = fmt.Fprintln(env.ErrOut, strings.Join(result.Findings, "\n"))
				return command.Printed(command.ExitProblem)
			}
			var manifests []string
			for _, policy := range all {
				text, err := policy.Manifest()
				if err != nil {
					return err
				}
				if at := strings.IndexFunc(text, decision.Hidden); at >= 0 {
					return fmt.Errorf("%s: line %d of the ExportPolicy has a character that nobody sees, %.8q; expected it escaped, or none",
						policy.Folder, strings.Count(text[:at], "\n")+1, text[at:])
				}
				manifests = append(manifests, text)
			}
			_, _ = io.WriteString(env.Raw, strings.Join(manifests, "---\n"))
			return nil
		})
}
