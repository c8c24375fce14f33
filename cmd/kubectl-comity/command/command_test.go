// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestCodeOf(t *testing.T) {
	cause := errors.New("x")
	for _, test := range []struct {
		err  error
		want ExitCode
	}{
		{nil, ExitDone},
		{cause, ExitRefused},
		{Incomplete(nil), ExitDone},
		{&Error{Code: ExitProblem, Err: cause}, ExitProblem},
		{Incomplete(fmt.Errorf("more: %w", cause)), ExitIncomplete},
		{fmt.Errorf("around: %w", &Error{Code: ExitProblem, Err: cause}), ExitProblem},
		{Printed(ExitProblem), ExitProblem},
	} {
		if got := CodeOf(test.err); got != test.want {
			t.Errorf("CodeOf(%v) = %d, want %d", test.err, got, test.want)
		}
	}
	if !errors.Is(Incomplete(cause), cause) {
		t.Error("the cause is lost")
	}
}

func TestOutputPrintsWithKindAndVersion(t *testing.T) {
	var out bytes.Buffer
	if err := (&Output{Format: "yaml"}).Print(&out, "Thing", struct {
		Name string `json:"name"`
	}{"x"}, nil); err != nil {
		t.Fatal(err)
	}
	if want := "apiVersion: cli.comity.dev/v1alpha1\nkind: Thing\nname: x\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	printed := false
	if err := (&Output{}).Print(&out, "Thing", nil, func() { printed = true }); err != nil || !printed {
		t.Errorf("without -o it is not printed for people: %v", err)
	}
}

func TestAnUnknownFormatIsRefused(t *testing.T) {
	var output Output
	cmd := &cobra.Command{}
	output.AddFlags(cmd, "junit")
	if usage := cmd.Flags().Lookup("output").Usage; usage != "Output format: json, yaml or junit" {
		t.Errorf("the usage is %q", usage)
	}
	if err := cmd.ParseFlags([]string{"-o", "junit"}); err != nil || output.Format != "junit" {
		t.Errorf("a known format gives %q and %v", output.Format, err)
	}
	if err := cmd.ParseFlags([]string{"-o", "wide"}); CodeOf(err) != ExitRefused || !strings.Contains(err.Error(), "expected one of: json, yaml, junit") {
		t.Errorf("an unknown format gives %v", err)
	}
}

func TestOutputPrintsObjectsThatCanBeApplied(t *testing.T) {
	objects := []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "ns"}}},
		{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"namespace": "ns", "name": "s"}}},
	}
	var out bytes.Buffer
	if err := (&Output{Format: "yaml"}).PrintObjects(&out, objects); err != nil {
		t.Fatal(err)
	}
	want := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: ns\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: s\n  namespace: ns\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := (&Output{Format: "json"}).PrintObjects(&out, objects); err != nil || !strings.Contains(out.String(), `"kind": "List"`) {
		t.Errorf("JSON is %v\n%s", err, out.String())
	}
}

func TestNothingThatIsPrintedMovesTheCursor(t *testing.T) {
	var out, errOut bytes.Buffer
	env := NewEnv(genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
	env.Printf("a\tb\u202e\U000E0001\x1b[2J\xff\n%s\nc", strings.Repeat("x", 5000))
	env.Warnf("\x07")
	lines := strings.Split(out.String(), "\n")
	if want := "a\tb" + `\u202e\udb40\udc01\u001b[2J` + "\uFFFD"; lines[0] != want || len(lines[1]) > 4100 || !strings.HasSuffix(lines[1], "x…") || lines[2] != "c" {
		t.Errorf("got %q", lines)
	}
	if got := errOut.String(); got != "Warning: \\u0007\n" {
		t.Errorf("got %q", got)
	}
	_, _ = fmt.Fprint(Whole(env.Out), strings.Repeat("y", 5000))
	if !strings.HasSuffix(out.String(), "c"+strings.Repeat("y", 5000)) {
		t.Error("what a program reads is cut")
	}
}

func TestParseKey(t *testing.T) {
	if got, err := ParseKey("shop/web"); err != nil || got.String() != "shop/web" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"web", "/web", "shop/", "a/b/c", "shop/web.x"} {
		if got, err := ParseKey(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// late is a context that has not noticed yet that its deadline is over.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestTheErrorOfARequestAtTheDeadlineReplacesNoOther(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := Await(late{ctx}, func(context.Context) error {
		switch calls++; calls {
		case 1:
			return errors.New("0 of 2 replicas")
		case 3:
			cancel()
		}
		return errors.New("would exceed context deadline")
	})
	if err == nil || err.Error() != "0 of 2 replicas" {
		t.Errorf("got %v", err)
	}
}
