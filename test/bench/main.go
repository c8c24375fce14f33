// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench measures how long a change of an endpoint in cluster a takes
// until the derived slice in cluster b shows it.
//
// It takes a number of changes and starts two control planes with Comity beside
// them; it gives a table of percentiles of Comity and, from the same run, of a
// bare client-go relay that makes the same two writes, and never judges: times
// of a busy machine are no test.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
)

// options are the flags.
type options struct {
	// changes are measured, after warmup ones that are not.
	changes, warmup int
	// exports are made beside the one that is measured.
	exports int
	// verb is how the relay writes: apply, as Comity does, or update.
	verb string
	// limit bounds the whole run.
	limit time.Duration
}

func main() {
	o := options{changes: 200, warmup: 20, verb: verbApply, limit: 15 * time.Minute}
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.IntVar(&o.changes, "changes", o.changes, "how many changes to measure, one after the other")
	flags.IntVar(&o.warmup, "warmup", o.warmup, "how many changes to make before")
	flags.IntVar(&o.exports, "exports", o.exports, "how many other Services to export")
	flags.StringVar(&o.verb, "relay-verb", o.verb, "how the relay writes: apply, as Comity does, or update")
	flags.DurationVar(&o.limit, "limit", o.limit, "how long all of it may take")
	if err := flags.Parse(os.Args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if err := o.validate(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctrl.SetLogger(logr.Discard())
	if err := start(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (o options) validate() error {
	switch {
	case o.changes < 1:
		return fmt.Errorf("--changes: %d given, expected at least 1", o.changes)
	case o.warmup < 0 || o.exports < 0:
		return errors.New("--warmup and --exports: expected no negative number")
	case o.verb != verbApply && o.verb != verbUpdate:
		return fmt.Errorf("--relay-verb: %q given, expected %s or %s", o.verb, verbApply, verbUpdate)
	}
	return nil
}

// start runs the benchmark until it is done, interrupted or out of time.
func start(o options) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	p, err := newPair()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.start(ctx); err != nil {
		return err
	}
	return p.measure(ctx, o)
}
