// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/app"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/reference"
)

func TestTheReferenceIsUpToDate(t *testing.T) {
	stored, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "kubectl-comity.md"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page(), string(stored)); diff != "" {
		t.Errorf("docs/kubectl-comity.md is not what the commands say; run make generate (-want +got)\n%s", diff)
	}
}

func TestEveryCommandAndFlagIsExplained(t *testing.T) {
	root := app.New(command.NewEnv(genericiooptions.NewTestIOStreamsDiscard()))
	for _, cmd := range reference.Leaves(root) {
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s lacks a short text, a long text or an example", cmd.CommandPath())
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short text ends in a full stop", cmd.CommandPath())
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			if line != "" && !strings.HasPrefix(line, "  kubectl comity ") && !strings.HasPrefix(line, "  #") {
				t.Errorf("%s: the line %q of the example is not indented by two, or runs something else", cmd.CommandPath(), line)
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: flag --%s is not explained", cmd.CommandPath(), f.Name)
			}
		})
	}
}
