// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command binaries fetches or builds, once, the programs that test clusters are
// made of, and prints the directory to use as KUBEBUILDER_ASSETS.
//
//	go -C test run ./clusters/cmd/binaries                  everything, progress on standard error
//	go -C test run ./clusters/cmd/binaries --print-assets   only what envtest needs, no progress
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/comity-mcs/comity/test/clusters/binaries"
)

func main() {
	assetsOnly := pflag.Bool("print-assets", false, "ensure etcd, kube-apiserver and kubectl only, and print nothing but their directory")
	withKind := pflag.Bool("kind", false, "ensure kind as well")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *assetsOnly, *withKind); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "binaries:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, assetsOnly, withKind bool) error {
	p, err := binaries.New()
	if err != nil {
		return err
	}
	names := binaries.ControlPlane()
	if withKind {
		names = append(names, binaries.Kind)
	}
	if assetsOnly {
		p.Out, names = io.Discard, nil
	}
	if _, err := p.Ensure(ctx, names...); err != nil {
		return err
	}
	dir, err := p.Assets(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Println(dir)
	return err
}
