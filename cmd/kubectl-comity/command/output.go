// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// APIVersion is that of what commands print with -o json and -o yaml.
const APIVersion = "cli.comity.dev/v1alpha1"

// Output is the flag -o. The zero value prints for people.
type Output struct {
	Format  string
	formats []string
}

// AddFlags registers -o for JSON, YAML and more formats.
func (o *Output) AddFlags(cmd *cobra.Command, more ...string) {
	all := append([]string{"json", "yaml"}, more...)
	o.formats = all
	last := len(all) - 1
	cmd.Flags().VarP(o, "output", "o", "Output format: "+strings.Join(all[:last], ", ")+" or "+all[last])
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
}

// Set implements pflag.Value.
func (o *Output) Set(format string) error {
	if !slices.Contains(o.formats, format) {
		return fmt.Errorf("expected one of: %s", strings.Join(o.formats, ", "))
	}
	o.Format = format
	return nil
}

// String implements pflag.Value.
func (o *Output) String() string { return o.Format }

// Type implements pflag.Value.
func (o *Output) Type() string { return "format" }

// Structured is true if the output is read by a program.
func (o *Output) Structured() bool { return o.Format != "" }

// Print shows v, whose JSON is an object: by people, or in the format of -o with kind and
// APIVersion.
func (o *Output) Print(out io.Writer, kind string, v any, people func()) error {
	if !o.Structured() {
		people()
		return nil
	}
	content := map[string]any{}
	data, err := json.Marshal(v)
	utilruntime.Must(cmp.Or(err, json.Unmarshal(data, &content))) // not reached: v has plain data
	content["apiVersion"], content["kind"] = APIVersion, kind
	return o.encode(out, &unstructured.Unstructured{Object: content})
}

// Conclude is Print; the exit code is ExitProblem if v is not well.
func (o *Output) Conclude(out io.Writer, kind string, v any, isWell bool, people func()) error {
	return cmp.Or(o.Print(out, kind, v, people), PrintedIf(!isWell))
}

// PrintObjects writes Kubernetes objects as YAML documents, or as one List in JSON.
func (o *Output) PrintObjects(out io.Writer, objects []*unstructured.Unstructured) error {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	var documents []runtime.Object
	for _, object := range objects {
		list.Items, documents = append(list.Items, *object), append(documents, object)
	}
	if o.Format == "json" {
		documents = []runtime.Object{list}
	}
	return o.encode(out, documents...)
}

// encode writes documents in the format of -o.
func (o *Output) encode(out io.Writer, documents ...runtime.Object) error {
	printer, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.Format)
	utilruntime.Must(err) // not reached: the format is one of these
	for _, document := range documents {
		if err := printer.PrintObj(document, Whole(out)); err != nil {
			return err
		}
	}
	return nil
}

// Table prints rows in columns.
type Table struct{ out *tabwriter.Writer }

// NewTable begins a table with its headings. Flush ends it.
func NewTable(out io.Writer, headings ...any) Table {
	t := Table{tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)}
	t.Row(headings...)
	return t
}

// Row adds a row. An empty cell is shown as a dash.
func (t Table) Row(cells ...any) {
	texts := model.Map(cells, func(cell any) string { return cmp.Or(fmt.Sprint(cell), "-") })
	_, _ = fmt.Fprintln(t.out, strings.Join(texts, "\t"))
}

// Flush prints the rows. A reader that hung up is no error, as with all that is printed.
func (t Table) Flush() { _ = t.out.Flush() }

// printable writes text of others, such as the answers of policies, to a terminal, as
// decision.Shown. A line is cut where no one reads on.
type printable struct {
	to io.Writer
	// cut is after how many bytes a line ends; 0 for never.
	cut int
}

// maxLine is as long as a denial that the webhook sends.
const maxLine = 4096

// Whole is Env.Out for a program, which reads every line to its end.
func Whole(out io.Writer) io.Writer {
	if p, is := out.(printable); is {
		return printable{p.to, 0}
	}
	return out
}

// Write implements io.Writer. A write ends with a whole character, as those of fmt do.
func (p printable) Write(text []byte) (int, error) {
	lines := model.Map(strings.Split(string(text), "\n"), func(line string) string { return decision.Shown(line, p.cut) })
	_, err := io.WriteString(p.to, strings.Join(lines, "\n"))
	return len(text), err
}

// ExitCode is what the process returns to the shell.
type ExitCode int

// The exit codes of every command.
const (
	// ExitDone: the command did what it was asked to, or all is healthy.
	ExitDone ExitCode = 0
	// ExitProblem: the command ran and found a problem, such as an unhealthy cluster.
	ExitProblem ExitCode = 1
	// ExitRefused: wrong usage, or a check failed. Nothing was written. It is the code of
	// every error that is not an Error.
	ExitRefused ExitCode = 2
	// ExitIncomplete: the command failed while it wrote. Repeat it.
	ExitIncomplete ExitCode = 3
)

// Error is an error with an exit code other than ExitRefused.
type Error struct {
	Code ExitCode
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Incomplete says that the command failed while it wrote. err may be nil.
func Incomplete(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: ExitIncomplete, Err: err}
}

// ErrPrinted is the cause where the command has printed already what is wrong.
var ErrPrinted = errors.New("the problem is printed above")

// Printed is code without a message: the command has printed what is wrong.
func Printed(code ExitCode) error { return &Error{code, ErrPrinted} }

// PrintedIf is ExitProblem without a message if there is a problem, and nil otherwise.
func PrintedIf(problem bool) error {
	if problem {
		return Printed(ExitProblem)
	}
	return nil
}

// CodeOf is the exit code of err.
func CodeOf(err error) ExitCode {
	if err == nil {
		return ExitDone
	}
	if coded := (*Error)(nil); errors.As(err, &coded) {
		return coded.Code
	}
	return ExitRefused
}

// AddYes registers the flag --yes of a command that asks before it writes what cannot be
// taken back.
func AddYes(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "Do not ask; required if it would ask and the input is not a terminal")
}

// Confirm shows what will happen. Unless the user has agreed to it already, it asks, and
// gives an error if the answer is not yes.
func (e *Env) Confirm(agreed bool, what string) error {
	_, _ = fmt.Fprint(e.ErrOut, what)
	if agreed {
		return nil
	}
	if !e.IsTerminal(e.In) {
		return fmt.Errorf("the input is not a terminal, so nobody can be asked; pass --yes to continue")
	}
	_, _ = fmt.Fprint(e.ErrOut, "Continue? [y/N] ")
	answer, err := bufio.NewReader(e.In).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the answer: %w", err)
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return fmt.Errorf("the answer was not yes; nothing was written")
	}
	return nil
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
