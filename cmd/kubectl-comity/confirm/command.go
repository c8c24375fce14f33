// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"context"
	"encoding/json"
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
		Long: `Confirm what waits for an administrator in the cluster of --context. Nothing is
removed or changed without a statement of the cluster that exported it; what was lost
without one stays until it is confirmed here. kubectl comity status lists what waits.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMissing(env), newTakeover(env), newLost(env))
	return cmd
}

// open connects to the cluster of --context, or of the current one.
func open(ctx context.Context, env *command.Env) (*command.Target, error) {
	names, err := env.ContextNames(nil)
	if err != nil {
		return nil, err
	}
	return env.Open(ctx, names[0])
}

// patch merges content into object if it is still the same one.
func patch(ctx context.Context, target *command.Target, object client.Object, what string, content map[string]any) error {
	metadata, _ := content["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		content["metadata"] = metadata
	}
	metadata["uid"] = object.GetUID()
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("encode the patch of %s: %w", what, err)
	}
	if err := target.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, text), client.FieldOwner(fieldOwner)); err != nil {
		return command.Incomplete(target.Errorf("%s: %w", what, err))
	}
	return nil
}

func annotation(key, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// selection is NAMESPACE/NAME, or --all.
type selection struct {
	command.Confirmation
	all bool
	key types.NamespacedName
}

func (s *selection) addFlags(cmd *cobra.Command, all string) {
	cmd.Flags().BoolVar(&s.all, "all", false, all)
	s.AddFlags(cmd)
}

func (s *selection) parse(args []string) error {
	if s.all == (len(args) == 1) {
		return command.Refusedf("expected either NAMESPACE/NAME or --all")
	}
	if s.all {
		return nil
	}
	namespace, name, found := strings.Cut(args[0], "/")
	if !found || namespace == "" || name == "" {
		return command.Refusedf("%q: expected NAMESPACE/NAME, such as shop/web", args[0])
	}
	s.key = types.NamespacedName{Namespace: namespace, Name: name}
	return nil
}

// ask lists what is confirmed, and asks unless one object was named.
func (s *selection) ask(env *command.Env, heading string, lines []string) error {
	sure := command.Confirmation{Yes: s.Yes || !s.all}
	return sure.Ask(env, list(heading, lines))
}

func list(heading string, lines []string) string {
	return heading + "\n  " + strings.Join(lines, "\n  ") + "\n"
}
