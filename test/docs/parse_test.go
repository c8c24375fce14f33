// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	plugin "github.com/comity-mcs/comity/cmd/kubectl-comity/app"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

var (
	// shellBlock is a block of commands, which a reader pastes.
	shellBlock = regexp.MustCompile("(?ms)^```(?:sh|console)\n(.*?)^```")
	// session is what was typed, in a block that shows the output, too.
	session = regexp.MustCompile(`(?m)^\$ (.*)$`)
	// heredoc is the input of a command, which is no command.
	heredoc = regexp.MustCompile(`(?ms)<<'?END'?\n.*?^END$`)
	// codeSpan is a command within a text.
	codeSpan = regexp.MustCompile("`(kubectl comity [^`]+)`")
	// commandEnd ends a simple command. A substitution counts as a word.
	commandEnd = regexp.MustCompile(`[;|&]|\s[<>#]|\s[0-9]>`)
	// word is a word of a command as a shell splits it.
	word = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	// placeholder is an argument of a synopsis.
	placeholder = regexp.MustCompile(`^\[|^[A-Z][A-Z/]+$`)
	// prefix is what may be before a command on its line.
	prefix = regexp.MustCompile(`^(?:do|then|else|if|!|while|[A-Z_]+=\S*)\s+`)
)

// scripts are the blocks of commands of a page; of a session with its output, the commands.
func scripts(text string) (out []string) {
	for _, b := range shellBlock.FindAllStringSubmatch(text, -1) {
		script := b[1]
		if typed := session.FindAllStringSubmatch(script, -1); typed != nil {
			script = ""
			for _, line := range typed {
				script += line[1] + "\n"
			}
		}
		out = append(out, script)
	}
	return out
}

// shellCommands are the simple commands of the blocks of a page.
func shellCommands(text string) (out [][]string) {
	for _, script := range scripts(text) {
		script = strings.ReplaceAll(heredoc.ReplaceAllString(script, ""), "\\\n", " ")
		for line := range strings.SplitSeq(script, "\n") {
			out = append(out, simpleCommands(line)...)
		}
	}
	return out
}

func simpleCommands(line string) (out [][]string) {
	for line = strings.TrimSpace(line); line != "" && line[0] != '#'; {
		this, rest := line, ""
		for _, end := range commandEnd.FindAllStringIndex(line, -1) {
			if strings.Count(line[:end[0]], "'")%2 == 0 && strings.Count(line[:end[0]], `"`)%2 == 0 {
				this, rest = line[:end[0]], strings.TrimLeft(line[end[1]:], ";|&<># ")
				break
			}
		}
		for prefix.MatchString(this) {
			this = prefix.ReplaceAllString(this, "")
		}
		if words := shellWords(this); len(words) > 0 {
			out = append(out, words)
		}
		line = strings.TrimSpace(rest)
	}
	return out
}

func shellWords(text string) []string {
	words := word.FindAllString(text, -1)
	for i, w := range words {
		words[i] = strings.NewReplacer(`'`, "", `"`, "").Replace(w)
	}
	return words
}

func TestCommandsOfABlockAreFound(t *testing.T) {
	const page = "```sh\nfor c in a b; do kubectl comity status \"$c\" -n 'x y'; done # all\nkubectl comity join a b \\\n  --yes | tee f\n" +
		"kubectl apply -f - <<'END'\nkubectl comity nothing\nEND\n```\n```yaml\nkubectl comity nothing\n```\n```console\nA=b kubectl comity graph -o dot > f\n```\n"
	want := [][]string{
		{"for", "c", "in", "a", "b"}, {"kubectl", "comity", "status", "$c", "-n", "x y"}, {"done"}, {"all"},
		{"kubectl", "comity", "join", "a", "b", "--yes"}, {"tee", "f"}, {"kubectl", "apply", "-f", "-"},
		{"kubectl", "comity", "graph", "-o", "dot"}, {"f"},
	}
	if diff := cmp.Diff(want, shellCommands(page)); diff != "" {
		t.Error(diff)
	}
}

func TestEveryBlockOfCommandsIsAShellScript(t *testing.T) {
	for _, page := range pages(t) {
		for _, script := range scripts(read(t, page)) {
			if page == "docs/kubectl-comity.md" && strings.ContainsAny(script, "[|") {
				continue // a synopsis
			}
			checked := exec.CommandContext(t.Context(), "bash", "-n")
			checked.Stdin = strings.NewReader(script)
			if out, err := checked.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", page, err, out, script)
			}
		}
	}
}

// parse fails unless the plugin accepts flags and arguments. It runs nothing. Within a text,
// a command may be without its arguments.
func parse(t *testing.T, page string, words []string, inText bool) {
	t.Helper()
	root := plugin.New(command.NewEnv(genericiooptions.NewTestIOStreamsDiscard()))
	called := strings.Join(words, " ")
	cmd, rest, err := root.Find(words[2:])
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if inText && errors.As(err, new(*pflag.ValueRequiredError)) {
		return // it names a flag
	}
	if err != nil {
		t.Errorf("%s: %q: %v", page, called, err)
		return
	}
	args := cmd.Flags().Args()
	if cmd.HasSubCommands() && len(args) > 0 {
		t.Errorf("%s: %q: %q has no command %s", page, called, cmd.CommandPath(), args[0])
	}
	if inText && len(args) == 0 {
		return
	}
	for _, err := range []error{cmd.ValidateArgs(args), cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()} {
		if err != nil {
			t.Errorf("%s: %q: %v", page, called, err)
		}
	}
}

func TestEveryPluginCommandOfAPageParses(t *testing.T) {
	parsed := 0
	for _, page := range pages(t) {
		text := read(t, page)
		for _, words := range shellCommands(text) {
			if len(words) > 2 && words[0] == "kubectl" && words[1] == "comity" && !slices.ContainsFunc(words, placeholder.MatchString) {
				parse(t, page, words, false)
				parsed++
			}
		}
		for _, span := range codeSpan.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
			if words := shellWords(span[1]); !strings.ContainsAny(span[1], "…<[|") {
				parse(t, page, words, true)
				parsed++
			}
		}
	}
	if parsed < 120 {
		t.Errorf("parsed only %d commands: did the form of the pages change?", parsed)
	}
}

// Every value that a page sets of Comity's chart exists.
func TestEveryValueOfTheChartThatAPageSetsExists(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "charts", "comity", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	set := 0
	for _, page := range pages(t) {
		for _, words := range shellCommands(read(t, page)) {
			if words[0] != "helm" || !slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, "charts/comity") }) {
				continue
			}
			for i, w := range words[:len(words)-1] {
				if !slices.Contains([]string{"--set", "--set-string", "--set-file", "--set-json"}, w) {
					continue
				}
				for assigned := range strings.SplitSeq(words[i+1], ",") {
					key, _, _ := strings.Cut(assigned, "=")
					set++
					if !hasValue(values, strings.Split(key, ".")) {
						t.Errorf("%s sets %s, which charts/comity/values.yaml does not have", page, key)
					}
				}
			}
		}
	}
	if set < 10 {
		t.Errorf("found only %d values", set)
	}
}

// hasValue reports whether values have a path. An empty object may have any key.
func hasValue(values map[string]any, path []string) bool {
	value, has := values[path[0]]
	if !has || len(path) == 1 {
		return has
	}
	inner, is := value.(map[string]any)
	return is && (len(inner) == 0 || hasValue(inner, path[1:]))
}

// A block of YAML is one or more objects that can be parsed, without a key twice.
func TestEveryManifestOfAPageParses(t *testing.T) {
	manifest := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```|<<'?END'?\n(.*?)^END$")
	found := 0
	for _, page := range pages(t) {
		for _, m := range manifest.FindAllStringSubmatch(read(t, page), -1) {
			for document := range strings.SplitSeq(m[1]+m[2], "\n---\n") {
				var content any
				if err := yaml.UnmarshalStrict([]byte(document), &content); err != nil {
					t.Errorf("%s: %v:\n%s", page, err, document)
				}
				found++
			}
		}
	}
	if found < 10 {
		t.Errorf("found only %d manifests", found)
	}
}
