// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

const long = `Write one archive for a bug report. For each cluster it has the objects of Comity and
of the MCS API, derived Services, published and imported EndpointSlices, Comity's
Deployments, Pods, Events and logs, webhooks, the configuration of CoreDNS, address
ranges and zones of Nodes; and the output of version, status and diagnose.

Of a Secret it has the names of the keys. Values of environment variables, the
annotation last-applied-configuration, tokens and private keys are left out. Names,
labels and addresses are in it: read it before you publish it.

A cluster that does not answer does not stop the command. The output, and contents.yaml
in the archive, say what is not in it and why.`

// commandTimeout bounds one command.
const commandTimeout = time.Minute

// Report says what is in the archive.
type Report struct {
	File string `json:"file"`
	// Commands are those whose output is in it.
	Commands []string  `json:"commands"`
	Clusters []Cluster `json:"clusters"`
}

// Cluster is what was taken from one cluster.
type Cluster struct {
	Context string `json:"context"`
	// Taken are files, with the number of objects in them.
	Taken map[string]int `json:"taken"`
	// NotTaken says what is not in the archive, and why.
	NotTaken []string `json:"notTaken,omitempty"`
}

// New gives the command gather. tree makes the commands of the plugin.
func New(env *command.Env, tree func(*command.Env) *cobra.Command) *cobra.Command {
	var output command.Output
	var file string
	cmd := &cobra.Command{
		Use:               "gather [CONTEXT...]",
		Short:             "Write one archive with what a bug report needs",
		Long:              long,
		Example:           "  kubectl comity gather a b\n  kubectl comity gather a b --file report.tar.gz",
		ValidArgsFunction: env.CompleteContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := write(cmd.Context(), env, tree, args, file)
			if err != nil {
				return err
			}
			return output.Print(env.Out, "Gathered", &report, func() { report.print(env) })
		},
	}
	output.AddFlags(cmd)
	cmd.Flags().StringVar(&file, "file", "", "The archive, which must not exist (comity-gather-TIME.tar.gz without the flag)")
	return cmd
}

// write makes the archive. Only an error of the archive itself is returned.
func write(ctx context.Context, env *command.Env, tree func(*command.Env) *cobra.Command, args []string, name string) (report Report, err error) {
	now := time.Now().UTC()
	root := "comity-gather-" + now.Format("20060102T150405Z")
	sites, err := agent.Sites(ctx, env, args)
	if err != nil {
		return report, err
	}
	report = Report{File: cmp.Or(name, root+".tar.gz"), Clusters: make([]Cluster, len(sites))}
	file, err := os.OpenFile(report.File, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return report, fmt.Errorf("create the archive: %w", err)
	}
	a := newArchive(file, root, now)
	command.InParallel(sites, func(i int, site *agent.Site) { report.Clusters[i] = read(ctx, site, a) })
	for _, name := range []string{"version", "status", "diagnose"} {
		if out := run(ctx, env, tree, name, sites); out != nil && a.add(out, name+".txt") == nil {
			report.Commands = append(report.Commands, name)
		}
	}
	contents, err := yaml.Marshal(report)
	err = errors.Join(err, a.add(contents, "contents.yaml"), a.tar.Close(), a.gzip.Close(), file.Close(), ctx.Err())
	if err != nil {
		err = errors.Join(fmt.Errorf("write the archive: %w", err), os.Remove(report.File))
	}
	return report, err
}

// run gives the output of a command, whether it succeeds or not; nil if there is no such command.
func run(ctx context.Context, env *command.Env, tree func(*command.Env) *cobra.Command, name string, sites []*agent.Site) []byte {
	var out bytes.Buffer
	own := command.NewEnv(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
	own.Kubeconfig, own.Context, own.Timeout, own.As, own.AsGroups = env.Kubeconfig, env.Context, env.Timeout, env.As, env.AsGroups
	cmd := tree(own)
	if !slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == name }) {
		return nil
	}
	args := []string{name}
	for _, s := range sites {
		args = append(args, s.Context)
	}
	cmd.SetArgs(args)
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	if err := cmd.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(&out, "\nexit code %d: %v\n", command.CodeOf(err), err)
	}
	return out.Bytes()
}

func (r Report) print(env *command.Env) {
	env.Printf("Written: %s, with the output of %s\n", r.File, strings.Join(r.Commands, ", "))
	table := command.NewTable(env.Out, "\nCONTEXT", "FILES", "OBJECTS", "NOT TAKEN")
	for _, c := range r.Clusters {
		objects := 0
		for _, count := range c.Taken {
			objects += count
		}
		table.Row(c.Context, len(c.Taken), objects, len(c.NotTaken))
	}
	table.Flush()
	for _, c := range r.Clusters {
		for _, what := range c.NotTaken {
			env.Printf("Not taken: %s: %s\n", c.Context, what)
		}
	}
	env.Printf("\nNo content of a Secret is in it. Names, labels and addresses are: read it before you publish it.\n")
}
