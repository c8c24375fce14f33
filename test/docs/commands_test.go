// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	agent "github.com/comity-mcs/comity/cmd/comity/app"
	plugin "github.com/comity-mcs/comity/cmd/kubectl-comity/app"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

var (
	// pluginCall is `kubectl comity` with what follows on the line, as far as these may be arguments.
	pluginCall = regexp.MustCompile(`kubectl comity((?: [A-Za-z0-9<>\[\].=/-]+)+)`)
	// agentCall is a call of the agent's binary, which prose names in backquotes.
	agentCall = regexp.MustCompile("`comity((?: [A-Za-z0-9<>\\[\\].=/-]+)+)")
	// metricName is a metric of Comity's own.
	metricName = regexp.MustCompile(`^comity_[a-z_]+$`)
	// metricRow is a row of the table of metrics.
	metricRow = regexp.MustCompile("(?m)^\\| `(comity_[a-z_]+)` \\|")
)

// trees are the command lines of both programs.
func trees() (kubectl, binary *cobra.Command) {
	return plugin.New(command.NewEnv(genericiooptions.NewTestIOStreamsDiscard())), agent.NewCommand(agent.DefaultOptions())
}

// text is something that users read, and where it is.
type text struct{ place, content string }

// shipped are the folders whose messages users see.
var shipped = []string{"cmd", "charts", "config", "docs", "policies", "status", "sync", "webhook"}

// texts are the string literals of all programs and everything written for users.
func texts(t *testing.T) []text {
	t.Helper()
	out := []text{{"README.md", read(t, "README.md")}}
	for _, folder := range shipped {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			switch filepath.Ext(path) {
			case ".go":
				if !strings.HasSuffix(path, "_test.go") {
					out = append(out, literals(t, path)...)
				}
			case ".md", ".txt", ".tpl", ".yaml", ".rego":
				content, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				out = append(out, text{path, string(content)})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func literals(t *testing.T, path string) []text {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var out []text
	ast.Inspect(parsed, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, text{files.Position(literal.Pos()).String(), value})
		}
		return true
	})
	return out
}

func TestEveryCommandThatATextNamesExists(t *testing.T) {
	kubectl, binary := trees()
	found := map[string]int{}
	for _, text := range texts(t) {
		for _, call := range pluginCall.FindAllStringSubmatch(text.content, -1) {
			found["plugin"]++
			check(t, text.place, kubectl, "kubectl comity"+call[1], strings.Fields(call[1]))
		}
		for _, call := range agentCall.FindAllStringSubmatch(text.content, -1) {
			found["agent"]++
			check(t, text.place, binary, "comity"+call[1], strings.Fields(call[1]))
		}
	}
	if found["plugin"] < 20 || found["agent"] < 3 {
		t.Errorf("found only %v calls: the test does not read what it should", found)
	}
}

// check fails unless a call names a command and only flags that the command has.
func check(t *testing.T, place string, cmd *cobra.Command, call string, words []string) {
	t.Helper()
	for len(words) > 0 && cmd.HasAvailableSubCommands() && !strings.HasPrefix(words[0], "-") {
		name := strings.TrimRight(words[0], ".")
		i := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
		if i < 0 {
			t.Errorf("%s: %q: there is no command %q in %q", place, call, name, cmd.CommandPath())
			return
		}
		cmd, words = cmd.Commands()[i], words[1:]
	}
	for _, word := range words {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(strings.TrimRight(name, ".]"), "=")
		if isFlag && name != "" && name != "help" && lookup(cmd, name) == nil {
			t.Errorf("%s: %q: %q has no flag --%s", place, call, cmd.CommandPath(), name)
		}
	}
}

func lookup(cmd *cobra.Command, name string) *pflag.Flag {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f
	}
	return cmd.InheritedFlags().Lookup(name)
}

func TestEveryMetricIsDocumentedAndExists(t *testing.T) {
	inCode := map[string]bool{}
	for _, text := range texts(t) {
		if strings.Contains(text.place, ".go:") && metricName.MatchString(text.content) {
			inCode[text.content] = true
		}
	}
	if len(inCode) < 10 {
		t.Errorf("found only %d metrics in the code: %v", len(inCode), inCode)
	}
	documented := map[string]bool{}
	for _, row := range metricRow.FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		documented[row[1]] = true
		if !inCode[row[1]] {
			t.Errorf("docs/metrics.md documents metric %s, which does not exist", row[1])
		}
	}
	for name := range inCode {
		if !documented[name] {
			t.Errorf("docs/metrics.md does not document metric %s", name)
		}
	}
}
