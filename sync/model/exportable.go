// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// NotExportableError says why a ServiceExport exports nothing. Reason is one of
// those that KEP-1645 defines for Valid=False.
type NotExportableError struct {
	Reason  mcsv1beta1.ServiceExportConditionReason
	Message string
}

// Error is the message, which names the Service and what to do.
func (e *NotExportableError) Error() string { return e.Message }

// CheckExportable reports why the Service of ServiceExport key, nil if there is
// none, cannot be exported; nil if it can. The sync loop and the condition Valid
// both follow it (KEP-1645, "Service Types").
func CheckExportable(key types.NamespacedName, service *corev1.Service) *NotExportableError {
	refuse := func(reason mcsv1beta1.ServiceExportConditionReason, format string, args ...any) *NotExportableError {
		return &NotExportableError{reason, fmt.Sprintf("Service %s ", key) + fmt.Sprintf(format, args...)}
	}
	switch {
	case service == nil:
		return refuse(mcsv1beta1.ServiceExportReasonNoService, "does not exist in this cluster; create it or delete this ServiceExport")
	case service.DeletionTimestamp != nil:
		return refuse(mcsv1beta1.ServiceExportReasonNoService, "is being deleted; create it again or delete this ServiceExport")
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return refuse(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"has spec.type ExternalName, which cannot be exported; change it, or delete this ServiceExport")
	case service.Labels[LabelServiceImported] == "true":
		return refuse(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"has the label %s: it is an import; export the original Service, or delete this ServiceExport", LabelServiceImported)
	}
	return nil
}

// PortSelection says which ports of its Service an export shares: all, or those of
// some names. The zero value selects none.
type PortSelection struct {
	all   bool
	names []string // in the order given, unique; nil when all
}

// AllPorts selects every port, those without a name included.
func AllPorts() PortSelection { return PortSelection{all: true} }

// PortsNamed selects the ports of these names; the empty name is that of a port
// without one.
func PortsNamed(names ...string) PortSelection { return PortSelection{names: slices.Clone(names)} }

// ParsePortSelection reads the value of comity.dev/export-ports: names of ports
// separated by commas, white space around them ignored. It fails on an empty list, an
// empty item, an item that is no name of a port, and a name that is repeated.
func ParsePortSelection(text string) (PortSelection, error) {
	names, err := items(text, "port", "names of ports", "http,grpc")
	if err != nil {
		return PortSelection{}, err
	}
	for i, name := range names {
		switch {
		case len(validation.IsDNS1123Label(name)) > 0:
			return PortSelection{}, fmt.Errorf("item %d of %s is %s, which is not a port name; expected names of ports separated by commas, such as %q",
				i+1, Quote(text), Quote(name), "http,grpc")
		case slices.Contains(names[:i], name):
			return PortSelection{}, fmt.Errorf("item %d of %s repeats %q; expected each name once", i+1, Quote(text), name)
		}
	}
	return PortSelection{names: names}, nil
}

// PortsOfExport is what the annotation comity.dev/export-ports of a ServiceExport
// selects: every port if it has none. An error, which names object and annotation,
// never comes with a selection that has a port.
func PortsOfExport(export metav1.Object) (PortSelection, error) {
	text, set := export.GetAnnotations()[AnnotationExportPorts]
	if !set {
		return AllPorts(), nil
	}
	selection, err := ParsePortSelection(text)
	if err != nil {
		return PortSelection{}, fmt.Errorf("ServiceExport %s/%s, annotation %s: %w", export.GetNamespace(), export.GetName(), AnnotationExportPorts, err)
	}
	return selection, nil
}

// All reports whether every port is selected.
func (s PortSelection) All() bool { return s.all }

// Contains reports whether a port of that name is selected.
func (s PortSelection) Contains(name string) bool { return s.all || slices.Contains(s.names, name) }

// Of are the ports of a Service that are selected, in its order. service is nil if
// there is none.
func (s PortSelection) Of(service *corev1.Service) []corev1.ServicePort {
	if service == nil {
		return nil
	}
	if s.all {
		return service.Spec.Ports
	}
	return Without(service.Spec.Ports, func(p corev1.ServicePort) bool { return !s.Contains(p.Name) })
}

// Exported are the ports of a Service that are selected, as they are exported.
func (s PortSelection) Exported(service *corev1.Service) []mcsv1beta1.ServicePort {
	var out []mcsv1beta1.ServicePort
	for _, p := range s.Of(service) {
		out = append(out, mcsv1beta1.ServicePort{
			Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), AppProtocol: p.AppProtocol, Port: p.Port,
		})
	}
	return out
}

// Missing says which names no port of Service key has; empty if each has one. The text
// names object, annotation and what to do.
func (s PortSelection) Missing(key types.NamespacedName, service *corev1.Service) string {
	var missing []string
	for _, name := range s.names {
		if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == name }) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("ServiceExport %s, annotation %s: the Service has no port named %s; it has %s; correct the annotation, or the names of the ports",
		key, AnnotationExportPorts, quoted(missing), portNames(service.Spec.Ports))
}

// portNames lists the names of ports for a message.
func portNames(ports []corev1.ServicePort) string {
	names := make([]string, 0, len(ports))
	for _, p := range ports {
		if p.Name != "" {
			names = append(names, p.Name)
		}
	}
	switch {
	case len(names) > 0:
		return quoted(names)
	case len(ports) > 0:
		return "one port without a name"
	}
	return "no ports"
}

// quoted lists the first names, quoted, and counts the rest.
func quoted(names []string) string {
	const limit = 8
	var out []string
	for _, name := range names[:min(limit, len(names))] {
		out = append(out, Quote(name))
	}
	text := strings.Join(out, ", ")
	if more := len(names) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
