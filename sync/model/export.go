// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// Export is one exported Service of one cluster: what KEP-1645 calls a
// constituent of the import.
type Export struct {
	SourceExport
	ServiceProperties
	Key types.NamespacedName
	// Targets are the Service's, for importers that maintain selectors; empty unless the
	// exporter publishes its selector.
	Targets []Target
	// Identity are the identity labels of the Service's namespace, as published
	// with the export; nil if they were not.
	Identity map[string]string
	// Slices are the names of the EndpointSlices of the Service of which a copy is
	// published.
	Slices []string
}

// ServiceProperties are the properties of an exported Service that importers use. An
// ExportRecord has them as they are, with these descriptions.
// +kubebuilder:object:generate=true
type ServiceProperties struct {
	// type is ClusterSetIP or Headless.
	// +kubebuilder:validation:Enum=ClusterSetIP;Headless
	Type mcsv1beta1.ServiceImportType `json:"type"`
	// ports are the Service's ports; none are allowed for a headless Service.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Ports []mcsv1beta1.ServicePort `json:"ports,omitempty"`
	// ipFamilies are the Service's IP families, in its order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`
	// sessionAffinity is that of the Service.
	// +optional
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`
	// sessionAffinityConfig is that of the Service.
	// +optional
	SessionAffinityConfig *corev1.SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`
	// internalTrafficPolicy is that of the Service.
	// +optional
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`
	// trafficDistribution is that of the Service.
	// +optional
	TrafficDistribution *string `json:"trafficDistribution,omitempty"`
	// labels are ServiceExport.spec.exportedLabels.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are ServiceExport.spec.exportedAnnotations.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// tiers say which clusters importers use before which others (annotation
	// comity.dev/tiers of the ServiceExport). Importers ignore what they cannot read.
	// +optional
	// +kubebuilder:validation:MaxLength=2100
	Tiers string `json:"tiers,omitempty"`
	// selector is that of the Service, for importers with --selectors=maintain. It is
	// published only if the exporter has this setting too.
	// +optional
	Selector map[string]string `json:"selector,omitempty"`
}

// CopyFields sets the fields of one struct to those of another that have the same name and type.
// Both are pointers. A Service, a ServiceImport and an export have many in common.
func CopyFields[To, From any](to *To, from *From) *To {
	was, is := reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem()
	for n := range is.NumField() {
		if f := was.FieldByName(is.Type().Field(n).Name); f.IsValid() && f.Type() == is.Field(n).Type() {
			is.Field(n).Set(f)
		}
	}
	return to
}

// Withdrawal is the statement of a cluster that it exports a Service no longer.
type Withdrawal struct {
	// UID and CreatedAt are those of the ServiceExport.
	UID       types.UID
	CreatedAt time.Time
	// Suspended is true if the ServiceExport exists still.
	Suspended bool
	// Narrowed is true if the export is still published to some members, each of which
	// finds it where only that member reads.
	Narrowed bool
}

// Target is the target port in the pods of one port of the Service.
// +kubebuilder:object:generate=true
type Target struct {
	Port int32 `json:"port"`
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol"`
	// targetPort is the number or the name of a container's port.
	TargetPort intstr.IntOrString `json:"targetPort"`
}

// Import is what the exports of one namespace/name that reach a cluster are
// resolved to.
type Import struct {
	Key types.NamespacedName
	// ServiceProperties and Targets are those of the deciding export, but for Ports and
	// IPFamilies, and what configures kube-proxy if the import is Headless. Of an import
	// that is planned, Tiers are those in force.
	ServiceProperties
	Targets []Target
	// Constituents are the contributing exports, the deciding one first: oldest
	// first, but for takeovers that are held.
	Constituents []Constituent
}

// Constituent is the part of a cluster; false if it has none.
func (i *Import) Constituent(cluster ClusterID) (Constituent, bool) {
	return Find(i.Constituents, func(c Constituent) bool { return c.Cluster == cluster })
}

// Constituent is one cluster's part in an Import.
type Constituent struct {
	SourceExport
	// Ports are those of the export that equal the resolved ones by name,
	// protocol and number. Traffic to any other port must not reach this cluster.
	Ports []mcsv1beta1.ServicePort
	// Declared are all ports of the export, resolved or not. They are needed
	// where an existing import is kept as it is because a cluster was not read:
	// then what this cluster may serve is measured against the kept ports.
	Declared []mcsv1beta1.ServicePort
}

// Conflict is one property in which the exports of a Service disagree.
type Conflict struct {
	Reason mcsv1beta1.ServiceExportConditionReason
	// Message says which clusters differ in what, and whose value is used.
	Message string
}

// NotExportable says why the Service of ServiceExport key, nil if there is none, cannot be
// exported: a reason that KEP-1645 defines for Valid=False, and a message that names the
// Service and what to do. Both are empty if it can. The sync loop and the condition Valid
// both follow it (KEP-1645, "Service Types").
func NotExportable(key types.NamespacedName, service *corev1.Service) (reason mcsv1beta1.ServiceExportConditionReason, message string) {
	switch {
	case service == nil:
		reason, message = mcsv1beta1.ServiceExportReasonNoService, "does not exist in this cluster; create it or delete this ServiceExport"
	case service.DeletionTimestamp != nil:
		reason, message = mcsv1beta1.ServiceExportReasonNoService, "is being deleted; create it again or delete this ServiceExport"
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		reason, message = mcsv1beta1.ServiceExportReasonInvalidServiceType, "has spec.type ExternalName, which cannot be exported; change it, or delete this ServiceExport"
	case service.Labels[LabelServiceImported] == "true":
		reason, message = mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"has the label "+LabelServiceImported+": it is an import; export the original Service, or delete this ServiceExport"
	default:
		return "", ""
	}
	return reason, fmt.Sprintf("Service %s %s", key, message)
}

// ImportType is the type that the import of a Service has, or that of a derived Service.
func ImportType(service *corev1.Service) mcsv1beta1.ServiceImportType {
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		return mcsv1beta1.Headless
	}
	return mcsv1beta1.ClusterSetIP
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

// PortsOfExport is what the annotation comity.dev/export-ports of a ServiceExport
// selects: every port if it has none, else names of ports separated by commas, white space
// around them ignored. It fails on an empty list, an empty item, an item that is no name of a
// port, and a name that is repeated. An error, which names object and annotation, never comes
// with a selection that has a port.
func PortsOfExport(export metav1.Object) (PortSelection, error) {
	text, set := export.GetAnnotations()[AnnotationExportPorts]
	if !set {
		return AllPorts(), nil
	}
	names, err := items[string](text, "port", "names of ports", "http,grpc")
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			err = fmt.Errorf("item %d of %s repeats %q; expected each name once", i+1, Quote(text), name)
		}
	}
	if err != nil {
		return PortSelection{}, fmt.Errorf("ServiceExport %s/%s, annotation %s: %w", export.GetNamespace(), export.GetName(), AnnotationExportPorts, err)
	}
	return PortSelection{names: names}, nil
}

// All reports whether every port is selected.
func (s PortSelection) All() bool { return s.all }

// Contains reports whether a port of that name is selected.
func (s PortSelection) Contains(name string) bool { return s.all || slices.Contains(s.names, name) }

// Exported are the ports of a Service that are selected, as they are exported, in its order.
// service is nil if there is none.
func (s PortSelection) Exported(service *corev1.Service) (out []mcsv1beta1.ServicePort) {
	if service == nil {
		return nil
	}
	for _, p := range service.Spec.Ports {
		if s.Contains(p.Name) {
			out = append(out, mcsv1beta1.ServicePort{
				Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), AppProtocol: p.AppProtocol, Port: p.Port,
			})
		}
	}
	return out
}

// Missing says which names no port of Service key has; empty if each has one. The text
// names object, annotation and what to do.
func (s PortSelection) Missing(key types.NamespacedName, service *corev1.Service) string {
	missing := Without(s.names, func(name string) bool {
		return slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == name })
	})
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("ServiceExport %s, annotation %s: the Service has no port named %s; its ports: %s; correct the annotation, or the names of the ports",
		key, AnnotationExportPorts, quoted(missing), cmp.Or(quoted(Map(service.Spec.Ports, func(p corev1.ServicePort) string { return p.Name })), "none"))
}

// quoted lists the first names, quoted, and counts the rest.
func quoted(names []string) string {
	const limit = 8
	text := strings.Join(Map(names[:min(limit, len(names))], Quote), ", ")
	if more := len(names) - limit; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
