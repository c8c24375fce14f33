// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Name is how users run the plugin.
const Name = "kubectl comity"

// Version is the plugin's; the linker sets it.
var Version = "dev"

// Env is what the process gives to a command: streams and flags.
type Env struct {
	genericiooptions.IOStreams // Out and ErrOut are printable
	// Raw is Out for what is read as it is.
	Raw io.Writer
	// Kubeconfig, Context, Timeout, As and AsGroups are the flags that every
	// command has. Context is the one that is used if no argument names one.
	Kubeconfig, Context, Timeout, As string
	AsGroups                         []string
	// IsTerminal reports whether a stream is a terminal.
	IsTerminal func(stream any) bool
}

// NewEnv has the streams and no flag set.
func NewEnv(streams genericiooptions.IOStreams) *Env {
	raw := streams.Out
	streams.Out, streams.ErrOut = printable{raw, maxLine}, printable{streams.ErrOut, maxLine}
	return &Env{IOStreams: streams, Raw: raw, Timeout: "0", IsTerminal: isTerminal}
}

// AddFlags registers the flags that every command has, under kubectl's names.
func (e *Env) AddFlags(flags *pflag.FlagSet) {
	e.configFlags(&e.Context).AddFlags(flags)
	flags.Lookup("context").Usage = "The kubeconfig context to use if no argument names one"
}

// configFlags reads the kubeconfig as kubectl does. Its pointers are e's own, so
// that any number of contexts can be opened with the flags that were given once.
func (e *Env) configFlags(contextName *string) *genericclioptions.ConfigFlags {
	return &genericclioptions.ConfigFlags{
		KubeConfig: &e.Kubeconfig, Context: contextName, Timeout: &e.Timeout,
		Impersonate: &e.As, ImpersonateGroup: &e.AsGroups,
	}
}

// rawConfig is the merged kubeconfig.
func (e *Env) rawConfig() (clientcmdapi.Config, error) {
	raw, err := e.configFlags(&e.Context).ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return raw, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return raw, nil
}

// ContextNames are the contexts to work on: names as they are given, or else
// the one of --context, or else the current one. Every name is in the kubeconfig.
func (e *Env) ContextNames(names []string) ([]string, error) {
	raw, err := e.rawConfig()
	if err != nil {
		return nil, err
	}
	if used := cmp.Or(e.Context, raw.CurrentContext); len(names) == 0 && used != "" {
		names = []string{used}
	}
	known := cmp.Or(strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "), "none; set --kubeconfig or KUBECONFIG to the file that has them")
	if len(names) == 0 {
		return nil, fmt.Errorf("no context is given and the kubeconfig has no current one; expected one of: %s", known)
	}
	for _, name := range names {
		if _, ok := raw.Contexts[name]; !ok {
			return nil, fmt.Errorf("context %q is not in the kubeconfig; expected one of: %s", name, known)
		}
	}
	return names, nil
}

// CompleteContexts completes arguments that are names of contexts.
func (e *Env) CompleteContexts(_ *cobra.Command, given []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	raw, _ := e.rawConfig() // of one that cannot be read, nothing is completed
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(raw.Contexts)), func(name string) bool { return slices.Contains(given, name) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Group is a command that only has others.
func Group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	help := func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	group := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs, RunE: help}
	group.AddCommand(commands...)
	return group
}

// New is a command. run reads the flags.
func New(use, short, long, example string, args cobra.PositionalArgs, run func(context.Context, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Example: example, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args) },
	}
}

// Command is New with arguments that are contexts, perhaps after others: at least that many.
func (e *Env) Command(use, short, long, example string, atLeast int, run func(context.Context, *Env, []string) error) *cobra.Command {
	cmd := New(use, short, long, example, cobra.MinimumNArgs(atLeast), func(ctx context.Context, args []string) error {
		return run(ctx, e, args)
	})
	cmd.ValidArgsFunction = e.CompleteContexts
	return cmd
}

// Warnf prints a warning where it does not mix with the output.
func (e *Env) Warnf(format string, args ...any) {
	_, _ = fmt.Fprintf(e.ErrOut, "Warning: "+format+"\n", args...)
}

// Printf prints a line of the output.
func (e *Env) Printf(format string, args ...any) { _, _ = fmt.Fprintf(e.Out, format, args...) }

// OpenAll opens the contexts that ContextNames gives. Two of them that are one
// cluster are refused.
func (e *Env) OpenAll(ctx context.Context, names []string) ([]*Target, error) {
	names, err := e.ContextNames(names)
	if err != nil {
		return nil, err
	}
	var targets []*Target
	for _, name := range names {
		target, err := e.Open(ctx, name)
		if err != nil {
			return nil, err
		}
		targets = append(targets, target)
	}
	return targets, Distinct(targets)
}

// ParseKey is the object that an argument names.
func ParseKey(text string) (key types.NamespacedName, err error) {
	namespace, name, _ := strings.Cut(text, "/")
	if problems := append(validation.IsDNS1123Label(namespace), validation.IsDNS1123Label(name)...); len(problems) > 0 {
		return key, fmt.Errorf("%q: expected NAMESPACE/NAME, such as shop/web", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
