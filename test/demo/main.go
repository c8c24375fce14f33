// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command demo shows what Comity does on three real clusters, with the real output
// of every command, and fails at the first difference from what it expects.
//
// It takes the kind of clusters and where to stop, and gives an exit code: 0
// when everything was as expected. It ends all that it started, unless asked to
// keep it until Ctrl-C, and changes no cluster of the user.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/demo/output"
	"github.com/comity-mcs/comity/test/demo/steps"
	"github.com/comity-mcs/comity/test/demo/world"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

// options are the flags.
type options struct {
	clusters  world.Kind
	stopAfter string
	keep      bool
	family    clusters.Family
}

func parse(args []string) (options, error) {
	o := options{clusters: world.ControlPlanes}
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	flags.Var(&o.clusters, "clusters", "control-planes (processes; no Docker, no root) or kind (needs Docker)")
	flags.Var(&o.family, "family", "addresses of Pods and Services in kind clusters: ipv4, ipv6 or dual; by default dual where Docker has IPv6. The steps that follow \"join\" need IPv4")
	flags.StringVar(&o.stopAfter, "stop-after", "", "end after this step: "+strings.Join(stepNames(world.InDocker), ", "))
	flags.BoolVar(&o.keep, "keep", false, "keep everything running until Ctrl-C, and print how to access it")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.family != "" && o.clusters != world.InDocker {
		return o, fmt.Errorf("--family %s is for --clusters %s: control planes as processes have IPv4", o.family, world.InDocker)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("argument %q is not expected: there are only flags", flags.Arg(0))
	}
	for _, name := range append(stepNames(o.clusters), "") {
		if name == o.stopAfter {
			return o, nil
		}
	}
	return o, fmt.Errorf("--stop-after: there is no step %q with --clusters %s; expected one of %s",
		o.stopAfter, o.clusters, strings.Join(stepNames(o.clusters), ", "))
}

func stepNames(kind world.Kind) []string {
	var names []string
	for _, step := range steps.Steps(kind) {
		names = append(names, step.Name)
	}
	return names
}

// run is the whole program; it gives the exit code.
func run(args []string, out io.Writer) int {
	o, err := parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 2
	}
	log.SetLogger(logr.Discard()) // else controller-runtime complains after 30 s that no one did
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx, o, output.New(out)); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		if !o.keep && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "\ndemo: everything was stopped; use --keep to keep it running")
		}
		return 1
	}
	return 0
}

// demo runs the steps and ends what it started.
func demo(ctx context.Context, o options, t *output.Printer) (err error) {
	w, err := world.New(t, o.clusters, o.family)
	if err != nil {
		return err
	}
	defer func() {
		if ended := w.Close(); ended != nil {
			err = errors.Join(err, fmt.Errorf("end the demo: %w", ended))
		}
	}()
	err = play(ctx, o, w)
	t.Times()
	if o.keep && ctx.Err() == nil {
		if err != nil {
			t.Print("\nIt FAILED: %v", err)
		}
		w.LookAround()
		<-ctx.Done()
	}
	return err
}

// play runs the steps up to the one to stop after.
func play(ctx context.Context, o options, w *world.World) error {
	for _, step := range steps.Steps(o.clusters) {
		if err := w.Out.Step(step.Title, func() error { return step.Play(ctx, w) }); err != nil {
			return fmt.Errorf("step %s: %w", step.Name, err)
		}
		if step.Name == o.stopAfter {
			break
		}
	}
	return nil
}
