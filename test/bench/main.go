// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench measures Comity: how long a change of an endpoint takes to the
// other clusters and to the cluster's own import, how much memory a mirrored slice
// takes, how many writes a change causes, how long a start with thousands of imports
// takes, and how long the webhook takes for a request.
//
// It takes the names of the parts to measure, all by default, and starts control
// planes with an agent each; it gives tables, and with --write a page and a plot.
// It has no limits to pass or fail: times on a busy machine are no test.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/comity-mcs/comity/test/bench/admission"
	"github.com/comity-mcs/comity/test/bench/fleet"
	"github.com/comity-mcs/comity/test/bench/result"
)

// options are the flags.
type options struct {
	changes, warmup   int
	exports, clusters []int
	pause             time.Duration
	slices, endpoints int
	imports           int
	agent, write      string
	limit             time.Duration
	hostileFor        time.Duration
	rounds            int
	requests          int
	auditFor          time.Duration
	// of the part scale
	members, scaleExports, scaleEndpoints, rate int
	topology                                    string
	slopes                                      bool
}

// bench is one run.
type bench struct {
	options
	begun   time.Time
	results *result.Results
	// machine is where it is measured, and what.
	machine result.Machine
}

// part is one thing to measure.
type part struct {
	name string
	// run measures; nil if there is nothing to measure.
	run func(*bench, context.Context) error
}

var parts = []part{
	{"propagation", (*bench).propagation},
	{"memory", (*bench).memory},
	{"change", (*bench).change},
	{"restart", (*bench).restart},
	{"hostile", (*bench).hostile},
	{"admission", (*bench).admission},
	{"scale", (*bench).scale},
	// Shows again what is kept.
	{"page", nil},
}

func main() {
	admission.Evaluate()
	o := options{
		changes: 300, warmup: 20, exports: []int{1, 100, 1000}, clusters: []int{2, 5, 10}, pause: 40 * time.Millisecond,
		slices: 4000, endpoints: 1000, imports: 10000, limit: time.Hour, hostileFor: time.Minute, rounds: 2,
		requests: 20000, auditFor: time.Minute,
		members: 100, scaleExports: 10_000, scaleEndpoints: 100_000, rate: 50, topology: topologyBoth, slopes: true,
	}
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(os.Stderr, "bench [flags] [propagation] [memory] [change] [restart] [hostile] [admission] [scale] [page]\n\n%s", flags.FlagUsages())
	}
	flags.IntVar(&o.changes, "changes", o.changes, "propagation: how many changes to measure between two clusters; fewer among more")
	flags.IntVar(&o.warmup, "warmup", o.warmup, "propagation: how many changes to make before")
	flags.IntSliceVar(&o.exports, "exports", o.exports, "propagation: how many exports there are, between two clusters; scale: the first is how many there are (default 10000)")
	flags.IntSliceVar(&o.clusters, "clusters", o.clusters, "propagation: how many clusters there are, with one export")
	flags.DurationVar(&o.pause, "pause", o.pause, "propagation: how long to let things settle after each change")
	flags.IntVar(&o.slices, "slices", o.slices, "memory: how many slices of ten endpoints to mirror")
	flags.IntVar(&o.endpoints, "endpoints", o.endpoints, "change: how many endpoints the service has; scale: how many there are (default 100000)")
	flags.IntVar(&o.imports, "imports", o.imports, "restart: how many imports there are")
	flags.DurationVar(&o.hostileFor, "hostile-for", o.hostileFor, "hostile: how long each load takes, each time")
	flags.IntVar(&o.rounds, "rounds", o.rounds, "hostile: how often each load is measured, in turns with the others")
	flags.IntVar(&o.requests, "requests", o.requests, "admission: how many requests to make of each engine")
	flags.DurationVar(&o.auditFor, "audit-for", o.auditFor, "admission: how long to make requests while exports are audited")
	flags.IntVar(&o.members, "members", o.members, "scale: how many members there are, all but one simulated")
	flags.IntVar(&o.rate, "rate", o.rate, "scale: how many changes to make in a second")
	flags.StringVar(&o.topology, "topology", o.topology, "scale: mesh, hub or both")
	flags.BoolVar(&o.slopes, "slopes", o.slopes, "scale: measure smaller sizes too, by which more members, exports and endpoints are compared")
	flags.StringVar(&o.agent, "agent", o.agent, "the agent to measure; built if empty")
	flags.StringVar(&o.write, "write", o.write, "directory for benchmarks.md, .svg and .json; what was measured before stays in them")
	flags.DurationVar(&o.limit, "limit", o.limit, "how long all of it may take")
	if err := flags.Parse(os.Args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if flags.Changed("exports") && len(o.exports) > 0 {
		o.scaleExports = o.exports[0]
	}
	if flags.Changed("endpoints") {
		o.scaleEndpoints = o.endpoints
	}
	if err := o.validate(flags.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctrl.SetLogger(logr.Discard())
	if err := start(o, flags.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (o options) validate(chosen []string) error {
	for _, name := range chosen {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("%q is no part; expected propagation, memory, change, restart, hostile, admission, scale or page", name)
		}
	}
	for _, n := range o.clusters {
		if n < 2 || n > 20 {
			return fmt.Errorf("--clusters: %d given, expected 2 to 20", n)
		}
	}
	scale := len(chosen) == 0 || slices.Contains(chosen, "scale") // it reads --exports otherwise than propagation
	if scale && (o.members < 4 || o.members > 1000 || o.scaleExports < o.members || o.rate < ownPart) {
		return fmt.Errorf("expected --members from 4 to 1000, at least as many --exports, and --rate of at least %d", ownPart)
	}
	if !slices.Contains([]string{topologyMesh, topologyHub, topologyBoth}, o.topology) {
		return fmt.Errorf("--topology: %q given, expected mesh, hub or both", o.topology)
	}
	if o.requests < 100 || o.auditFor < time.Second {
		return errors.New("expected --requests of at least 100, and --audit-for of at least 1s")
	}
	if o.changes < 1 || o.rounds < 1 || o.warmup < 0 || o.slices < 20 || o.endpoints < 1 || o.imports < 1 || slices.ContainsFunc(o.exports, func(n int) bool { return n < 1 }) {
		return errors.New("expected --changes, --exports, --endpoints, --imports and --rounds of at least 1, --slices of at least 20, and no negative --warmup")
	}
	return nil
}

// start measures the chosen parts until done, interrupted or out of time.
func start(o options, chosen []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	b := &bench{options: o, begun: time.Now(), results: &result.Results{}, machine: result.ThisMachine()}
	if o.agent != "" {
		b.machine.Build = filepath.Base(o.agent)
	}
	if o.write != "" {
		err := os.MkdirAll(o.write, 0o755) // before hours of measuring, not after
		if err != nil {
			return err
		}
		if b.results, err = result.Load(o.write); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if len(chosen) > 0 && !slices.Contains(chosen, p.name) {
			continue
		}
		b.say("measuring %s", p.name)
		if p.run != nil {
			if err := p.run(b, ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			b.results.At(p.name, b.machine)
		}
		if err := b.save(); err != nil {
			return err
		}
	}
	fmt.Print(b.results.Markdown())
	return nil
}

// save keeps what was found so far, if it is to be kept.
func (b *bench) save() error {
	if b.write == "" {
		return nil
	}
	return b.results.Save(b.write)
}

// say prints progress with the time since the start.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// with runs what measures on a fleet, and notes its versions.
func (b *bench) with(ctx context.Context, o fleet.Options, measure func(context.Context, *fleet.Fleet) error) (err error) {
	o.Agent, o.Say = b.agent, b.say
	f, err := fleet.Start(ctx, o)
	defer func() { err = errors.Join(err, f.Close()) }()
	if err != nil {
		return err
	}
	if b.machine.Versions, err = f.Versions(); err != nil {
		return err
	}
	for _, m := range f.Members {
		if err := m.CreateNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	return measure(ctx, f)
}

// list is numbers in a sentence.
func list(numbers []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(numbers)), ", "), "[]")
}
