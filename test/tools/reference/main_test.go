// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	agent "github.com/comity-mcs/comity/cmd/comity/app"
	plugin "github.com/comity-mcs/comity/cmd/kubectl-comity/app"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// roots are the command lines of both programs, by the page of each.
func roots() map[string]*cobra.Command {
	return map[string]*cobra.Command{
		"comity.md":         agent.NewCommand(agent.DefaultOptions()),
		"kubectl-comity.md": plugin.New(command.NewEnv(genericiooptions.NewTestIOStreamsDiscard())),
	}
}

// stored is a page as it is in docs.
func stored(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheReferencesAreUpToDate(t *testing.T) {
	for _, name := range []string{"COMITY_CLUSTER_ID", "COMITY_CLUSTERSET", "COMITY_EXCHANGE_KUBECONFIG", "POD_NAMESPACE"} {
		t.Setenv(name, "") // it would be a default
	}
	all, err := pages(filepath.Join("..", "..", "..", "docs"))
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range all {
		if diff := cmp.Diff(page, stored(t, name)); diff != "" {
			t.Errorf("docs/%s is not what the code says; run make generate (-want +got)\n%s", name, diff)
		}
	}
}

func TestATableWithoutAPlaceIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"# Imports\n": "has no place for table",
		"<!-- Generated table: other. -->\n<!-- End of table -->\n": "which does not exist",
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, importsName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := importsPage(folder, map[string]string{"import": "", "export": ""}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, expected %q", text, err, want)
		}
	}
}

func TestEveryCommandAndFlagIsDocumented(t *testing.T) {
	for name, root := range roots() {
		page := stored(t, name)
		for _, cmd := range append(leaves(root), root) {
			if cmd != root && !strings.Contains(page, "## "+cmd.CommandPath()+"\n") {
				t.Errorf("docs/%s does not document %s; run make generate", name, cmd.CommandPath())
			}
			if cmd.Short == "" {
				t.Errorf("%s lacks a short text", cmd.CommandPath())
			}
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Usage == "" {
					t.Errorf("%s: flag --%s is not explained", cmd.CommandPath(), f.Name)
				}
				if !f.Hidden && f.Name != "help" && !strings.Contains(page, "`--"+f.Name+"`") {
					t.Errorf("docs/%s does not document --%s of %s; run make generate", name, f.Name, cmd.CommandPath())
				}
			})
		}
	}
}

func TestEveryCommandOfThePluginHasTextsAndAnExample(t *testing.T) {
	for _, cmd := range leaves(roots()["kubectl-comity.md"]) {
		if cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s lacks a long text or an example", cmd.CommandPath())
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short text ends in a full stop", cmd.CommandPath())
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			if line != "" && !strings.HasPrefix(line, "  kubectl comity ") && !strings.HasPrefix(line, "  #") {
				t.Errorf("%s: the line %q of the example is not indented by two, or runs something else", cmd.CommandPath(), line)
			}
		}
	}
}
