// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"k8s.io/apimachinery/pkg/labels"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Subject is what the policies of one stage decide on; see Export and Import.
type Subject interface {
	// String names it in the failures of policies.
	String() string
	stage() v1alpha1.Stage
	operation() decision.Operation
	// key is the namespace and the name of the export.
	key() (namespace, name string)
	// matches reports whether a policy is to be evaluated for it.
	matches(v *version) bool
	// unknown says what a policy reads that is not known of it; empty for nothing.
	unknown(v *version) string
	// stands is how `existing: Keep` softens a denial of it.
	stands() decision.Softening
	// before is the export before an update of what is published; nil for anything else.
	before() Subject
	// value is the input of the policies, all of it at once if they need that.
	value(c *termCache, whole bool) (ast.Value, error)
}

// Export is an export of this cluster.
func Export(in decision.Input) Subject { return &exported{in} }

type exported struct{ decision.Input }

func (e *exported) String() string {
	return fmt.Sprintf("ServiceExport %s/%s", e.Object.Namespace, e.Object.Name)
}
func (*exported) stage() v1alpha1.Stage           { return v1alpha1.StageExport }
func (e *exported) operation() decision.Operation { return e.Operation }
func (e *exported) key() (string, string)         { return e.Object.Namespace, e.Object.Name }
func (*exported) unknown(*version) string         { return "" }

// matches: an export whose namespace is not known is never exempt, and an update is not if
// the export was matched before it: otherwise whoever drops a label drops the policy.
func (e *exported) matches(v *version) bool {
	selects := func(export *mcsv1beta1.ServiceExport) bool {
		return export != nil && v.objects.Matches(labels.Set(export.Labels))
	}
	if v.objects != nil && !selects(e.Object) && !selects(e.OldObject) {
		return false
	}
	return v.namespaces == nil || e.Namespace == nil || v.namespaces.Matches(labels.Set(e.Namespace.Labels))
}

func (e *exported) stands() decision.Softening {
	if e.Operation == decision.Audit && e.Published {
		return decision.ByExisting
	}
	return decision.NotSoftened
}

func (e *exported) before() Subject {
	if e.Before == nil || e.Operation != decision.Update || !e.Published {
		return nil
	}
	return Export(*e.Before)
}

// value has only those fields converted that policies read, when they read them, unless a
// policy does with the input what needs all of it.
func (e *exported) value(c *termCache, whole bool) (ast.Value, error) {
	fields, err := c.fields(e.Input)
	if err != nil {
		return nil, err
	}
	if whole {
		return ast.InterfaceToValue(fields)
	}
	return ast.LazyObject(fields), nil
}

// Import is the import of one export from one source cluster.
func Import(in decision.ImportInput) Subject { return &imported{in} }

type imported struct{ decision.ImportInput }

func (i *imported) String() string {
	return fmt.Sprintf("ServiceImport %s/%s from cluster %s", i.Export.Namespace, i.Export.Name, i.Source.Cluster)
}
func (*imported) stage() v1alpha1.Stage         { return v1alpha1.StageImport }
func (*imported) operation() decision.Operation { return decision.Audit }
func (i *imported) key() (string, string)       { return i.Export.Namespace, i.Export.Name }
func (*imported) before() Subject               { return nil }

// matches: an import into a namespace that is not known is never exempt.
func (i *imported) matches(v *version) bool {
	return v.namespaces == nil || i.Namespace == nil || v.namespaces.Matches(labels.Set(i.Namespace.Labels))
}

func (i *imported) unknown(v *version) string {
	for path := range v.reads {
		field, of, _ := strings.Cut(path, ".")
		export := path == anyField || field == "export" && of != "namespace" && of != "name"
		labels := path == anyField || field == "source" && of != "cluster"
		if i.Unread && export || i.Source.Unknown && labels {
			return fmt.Sprintf("policy %s reads what is not known of cluster %s yet", v.Name, i.Source.Cluster)
		}
	}
	return ""
}

func (i *imported) stands() decision.Softening {
	if i.Imported {
		return decision.ByImported
	}
	return decision.NotSoftened
}

// value is that of exported, but for the terms that are kept: imports are evaluated when
// something of them changed, and nobody waits for it.
func (i *imported) value(*termCache, bool) (ast.Value, error) {
	in := i.ImportInput
	in.Namespace = withoutManagedFields(in.Namespace)
	in.Source.Labels = notNilMap(in.Source.Labels)
	in.Export.Ports = notNil(in.Export.Ports)
	in.Export.Labels, in.Export.Annotations = notNilMap(in.Export.Labels), notNilMap(in.Export.Annotations)
	return valueOf(in)
}
