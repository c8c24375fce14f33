// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
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
	if err == nil {
		err = json.Unmarshal(data, &content)
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	content["apiVersion"], content["kind"] = APIVersion, kind
	return o.encode(out, &unstructured.Unstructured{Object: content})
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
	if err != nil {
		return err
	}
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
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = cmp.Or(fmt.Sprint(cell), "-")
	}
	_, _ = fmt.Fprintln(t.out, strings.Join(texts, "\t"))
}

// Flush prints the rows. A reader that hung up is no error, as with all that is printed.
func (t Table) Flush() { _ = t.out.Flush() }
