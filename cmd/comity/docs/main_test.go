// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/comity-mcs/comity/cmd/comity/app"
	"github.com/comity-mcs/comity/cmd/reference"
)

func TestTheReferenceIsUpToDate(t *testing.T) {
	for _, name := range []string{"COMITY_CLUSTER_ID", "COMITY_CLUSTERSET", "COMITY_EXCHANGE_KUBECONFIG", "POD_NAMESPACE"} {
		t.Setenv(name, "") // it would be a default
	}
	stored, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "comity.md"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page(), string(stored)); diff != "" {
		t.Errorf("docs/comity.md is not what the commands say; run make generate (-want +got)\n%s", diff)
	}
}

func TestEveryCommandAndFlagIsExplained(t *testing.T) {
	root := app.NewCommand()
	for _, cmd := range append([]*cobra.Command{root}, reference.Leaves(root)...) {
		if cmd.Short == "" {
			t.Errorf("%s lacks a text", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: flag --%s is not explained", cmd.CommandPath(), f.Name)
			}
		})
	}
}
