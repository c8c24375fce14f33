// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandLineCanBeTyped(t *testing.T) {
	for _, test := range []struct {
		name  string
		words []string
		want  string
	}{
		{"plain words stay", []string{"kubectl", "--context", "cluster-3@cluster-1", "get", "a/b"}, "kubectl --context cluster-3@cluster-1 get a/b"},
		{"JSON is quoted", []string{"-p", `{"a":[1]}`}, `-p '{"a":[1]}'`},
		{"a quote is escaped", []string{"it's"}, `'it'\''s'`},
		{"an empty word is seen", []string{"-l", ""}, "-l ''"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, CommandLine(test.words...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestColumnsLineUp(t *testing.T) {
	got := Columns([][]string{{"NAME", "ANSWER", ""}, {"web", "10.1.2.3", "ok"}, {"déjà-vu", "-"}})
	want := "NAME      ANSWER\nweb       10.1.2.3   ok\ndéjà-vu   -\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOutputReadsTheSameInALog(t *testing.T) {
	var out bytes.Buffer
	printer := New(&out)
	failure := errors.New("broken")
	err := printer.Step("First", func() error {
		printer.Print("A sentence.")
		printer.Command("kubectl", "get", "pods")
		printer.Output("NAME\nweb\n")
		printer.Command("kubectl", "version")
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("got error %v, want what the step returned", err)
	}
	printer.Times()
	want := `
[   0s] First
  A sentence.
    $ kubectl get pods
      NAME
      web

    $ kubectl version

  STEP    SECONDS
  First     0.0
  all       0.0
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
