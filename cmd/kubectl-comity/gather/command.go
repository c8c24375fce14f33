// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/diagnose"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
)

const long = `Write one archive for a bug report. For each cluster it has the objects of Comity and
of the MCS API, derived Services, published and imported EndpointSlices, Comity's
Deployments, Pods, Events and logs, webhooks, the configuration of CoreDNS, address
ranges and zones of Nodes; and the output of status and diagnose.

Of a Secret it has the names of the keys. Values of environment variables, the
annotation last-applied-configuration, tokens and private keys are left out. Names,
labels and addresses are in it: read it before you publish it.

A cluster that does not answer does not stop the command. The output, which is also
contents.yaml in the archive, says what is in it, and what is not and why.`

// Report is what is printed, and contents.yaml in the archive.
type Report struct {
	File string `json:"file"`
	// Plugin is the version of this plugin.
	Plugin   string    `json:"plugin"`
	Clusters []Cluster `json:"clusters"`
}

// Cluster is what was taken from one cluster.
type Cluster struct {
	Context string `json:"context"`
	// Taken are files, with the number of objects in them.
	Taken map[string]int `json:"taken"`
	// NotTaken says of a file that is not in the archive why.
	NotTaken map[string]string `json:"notTaken,omitempty"`
}

// New gives the command gather.
func New(env *command.Env) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:               "gather [CONTEXT...]",
		Short:             "Write one archive with what a bug report needs",
		Long:              long,
		Example:           "  kubectl comity gather a b\n  kubectl comity gather a b --file report.tar.gz",
		ValidArgsFunction: env.CompleteContexts,
		RunE:              func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), env, args, file) },
	}
	cmd.Flags().StringVar(&file, "file", "", "The archive, which must not exist (comity-gather-TIME.tar.gz without the flag)")
	return cmd
}

// run writes the archive and prints what is in it. Only an error of the archive itself is returned.
func run(ctx context.Context, env *command.Env, contexts []string, name string) error {
	sites, err := agent.Sites(ctx, env, contexts)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	root := "comity-gather-" + now.Format("20060102T150405Z")
	report := Report{File: cmp.Or(name, root+".tar.gz"), Plugin: command.Version, Clusters: make([]Cluster, len(sites))}
	file, err := os.OpenFile(report.File, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("create the archive: %w", err)
	}
	a := newArchive(file, root, now)
	command.InParallel(sites, func(i int, site *agent.Site) { report.Clusters[i] = read(ctx, site, a) })
	contents, err := yaml.Marshal(report)
	err = errors.Join(err,
		a.add(contents, "contents.yaml"),
		a.addYAML(status.Reader{}.Read(ctx, sites), "status.yaml"),
		a.addYAML(diagnose.Sites(ctx, sites, false), "diagnose.yaml"),
		a.tar.Close(), a.gzip.Close(), file.Close(), ctx.Err(),
	)
	if err != nil {
		return errors.Join(fmt.Errorf("write the archive: %w", err), os.Remove(report.File))
	}
	env.Printf("%s# No content of a Secret is in the archive. Names, labels and addresses are: read it before you publish it.\n", contents)
	return nil
}
