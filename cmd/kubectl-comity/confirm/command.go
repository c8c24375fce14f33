// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// fieldOwner is the field manager of confirmations.
const fieldOwner = "kubectl-comity"

// New is the command confirm.
func New(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "Confirm what waits for an administrator",
		Long: `Confirm what waits for an administrator in the cluster of --context.
kubectl comity status lists what waits.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMissing(env), newTakeover(env), newLost(env))
	return cmd
}

// proposal is what a command confirms, with one line for each thing.
type proposal struct {
	lines   []string
	heading string
	// none is printed if there are no lines, and done after the last change.
	none, done string
	changes    []change
}

// change is a merge patch of an object, with its UID, so that another one of its name is
// not patched.
type change struct {
	object client.Object
	patch  string
}

func annotate(object client.Object, key, value string) change {
	return change{object, fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, object.GetUID(), key, value)}
}

// confirms makes cmd show what find gives, ask unless one object was named, and write it.
func confirms(env *command.Env, cmd *cobra.Command, s *selection, find func(context.Context, *command.Target) (proposal, error)) *cobra.Command {
	s.AddFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		target, err := env.Open(cmd.Context())
		if err != nil {
			return err
		}
		p, err := find(cmd.Context(), target)
		if err != nil {
			return target.Errorf("%w", err)
		}
		if len(p.lines) == 0 {
			env.Printf("%s\n", p.none)
			return nil
		}
		sure := command.Confirmation{Yes: s.Yes || s.key.Name != ""}
		if err := sure.Ask(env, p.heading+"\n  "+strings.Join(p.lines, "\n  ")+"\n"); err != nil {
			return err
		}
		for _, c := range p.changes {
			patch := client.RawPatch(types.MergePatchType, []byte(c.patch))
			if err := target.Client.Patch(cmd.Context(), c.object, patch, client.FieldOwner(fieldOwner)); err != nil {
				return command.Incomplete(target.Errorf("%T %s: %w", c.object, client.ObjectKeyFromObject(c.object), err))
			}
		}
		env.Printf("Confirmed: %s.\n", p.done)
		return nil
	}
	return cmd
}

// selection is what the arguments select: an object, or all.
type selection struct {
	command.Confirmation
	all bool
	key types.NamespacedName
}

// parse reads NAMESPACE/NAME, or nothing with --all.
func (s *selection) parse(_ *cobra.Command, args []string) error {
	if s.all && len(args) == 0 {
		return nil
	}
	if s.all || len(args) != 1 {
		return fmt.Errorf("expected either NAMESPACE/NAME or --all")
	}
	namespace, name, found := strings.Cut(args[0], "/")
	if !found || namespace == "" || name == "" {
		return fmt.Errorf("%q: expected NAMESPACE/NAME, such as shop/web", args[0])
	}
	s.key = types.NamespacedName{Namespace: namespace, Name: name}
	return nil
}
