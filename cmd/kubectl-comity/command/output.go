// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// APIVersion is that of what commands print with -o json and -o yaml.
const APIVersion = "cli.comity.dev/v1alpha1"

var formats = []string{"json", "yaml"}

// Output is the flag -o. The zero value prints for people.
type Output struct{ Format string }

// AddFlags registers -o.
func (o *Output) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "Output format: json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Validate refuses an unknown format. Call it before any other work.
func (o *Output) Validate() error {
	if o.Format == "" || slices.Contains(formats, o.Format) {
		return nil
	}
	return Refusedf("flag --output is %q; expected one of: %s", o.Format, strings.Join(formats, ", "))
}

// Structured is true if the output is read by a program.
func (o *Output) Structured() bool { return o.Format != "" }

// Print writes v, whose JSON is an object, with kind and APIVersion.
func (o *Output) Print(out io.Writer, kind string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	object := map[string]any{}
	if err := json.Unmarshal(data, &object); err != nil {
		return fmt.Errorf("encode %s: %w", kind, err)
	}
	object["apiVersion"], object["kind"] = APIVersion, kind
	return o.print(out, &unstructured.Unstructured{Object: object})
}

// PrintObjects writes Kubernetes objects as they can be applied: YAML documents,
// or one List in JSON.
func (o *Output) PrintObjects(out io.Writer, scheme *runtime.Scheme, objects []client.Object) error {
	var items []any
	for _, object := range objects {
		gvk, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return err
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(object), err)
		}
		item := &unstructured.Unstructured{Object: content}
		item.SetGroupVersionKind(gvk)
		unstructured.RemoveNestedField(item.Object, "status")
		unstructured.RemoveNestedField(item.Object, "metadata", "creationTimestamp")
		items = append(items, item.Object)
	}
	if o.Format == "json" {
		return o.print(out, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "List", "items": items}})
	}
	printer, err := o.printer()
	if err != nil {
		return err
	}
	for _, item := range items {
		if err := printer.PrintObj(&unstructured.Unstructured{Object: item.(map[string]any)}, out); err != nil {
			return err
		}
	}
	return nil
}

func (o *Output) print(out io.Writer, object runtime.Object) error {
	printer, err := o.printer()
	if err != nil {
		return err
	}
	return printer.PrintObj(object, out)
}

func (o *Output) printer() (printers.ResourcePrinter, error) {
	return genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.Format)
}
