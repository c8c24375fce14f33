// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command release makes what a version of Comity consists of. It runs in the
// root of the repository, as `make build`, `make image` and `make dist` run it.
//
//	release build            the programs, for this machine, in bin
//	release image            the image for all platforms, as an OCI archive in dist;
//	                         with --load NAME also in the Docker engine, if one answers
//	release dist             all files of a release, in dist: the image's archive, the
//	                         plugin's archives and krew manifest, the chart, what editors of policies
//	                         read, and their sums
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/comity-mcs/comity/test/release"
)

// options are those of the command line.
type options struct{ root, version, out, load string }

func main() {
	var o options
	pflag.StringVar(&o.root, "root", ".", "the checkout to build from")
	pflag.StringVar(&o.version, "version", "", "version of what is made; that of the commit by default")
	pflag.StringVar(&o.out, "out", "", "directory to write to: bin or dist of the checkout by default")
	pflag.StringVar(&o.load, "load", "", "load the image into the Docker engine under this name")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, pflag.Args(), o); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, o options) error {
	steps := map[string]func(context.Context, release.Source, options) error{"build": build, "image": image, "dist": dist}
	if len(args) != 1 || steps[args[0]] == nil {
		return errors.New("one of build, image, dist was expected as the only argument")
	}
	source, err := release.Describe(ctx, o.root, o.version)
	if err != nil {
		return err
	}
	if o.out == "" {
		o.out = filepath.Join(o.root, "dist")
		if args[0] == "build" {
			o.out = filepath.Join(o.root, "bin")
		}
	}
	return steps[args[0]](ctx, source, o)
}

// build compiles the programs for this machine.
func build(ctx context.Context, source release.Source, o options) error {
	platform := release.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	for _, program := range []release.Program{release.Agent, release.Plugin} {
		out := filepath.Join(o.out, program.Name)
		if err := source.Compile(ctx, program, platform, out); err != nil {
			return err
		}
		fmt.Println(out)
	}
	return nil
}

// image makes the archive and, where there is an engine, loads the image.
func image(ctx context.Context, source release.Source, o options) error {
	archive, err := source.Images(ctx, o.out)
	if err != nil {
		return err
	}
	fmt.Println(archive)
	if o.load == "" {
		return nil
	}
	switch err := source.LoadImage(ctx, o.load); {
	case errors.Is(err, release.ErrNoEngine):
		fmt.Printf("%v; the archive can be loaded with `kind load image-archive` or unpacked and pushed with `crane push`\n", err)
	case err != nil:
		return err
	default:
		fmt.Println("loaded into the Docker engine as", o.load)
	}
	return nil
}

// dist makes all files of a release, and their sums last.
func dist(ctx context.Context, source release.Source, o options) error {
	archive, err := source.Images(ctx, o.out)
	if err != nil {
		return err
	}
	chart, err := source.Chart(o.out)
	if err != nil {
		return err
	}
	plugins, err := source.Plugins(ctx, o.out, release.PluginPlatforms()...)
	if err != nil {
		return err
	}
	files, err := source.PolicyFiles(o.out)
	if err != nil {
		return err
	}
	names := slices.Concat([]string{filepath.Base(archive), chart}, plugins, files)
	for _, name := range names {
		fmt.Println(filepath.Join(o.out, name))
	}
	return release.WriteSums(o.out, names)
}
