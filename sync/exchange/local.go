// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// LocalExport returns the export of cluster self that results from export and its
// Service, nil if there is none, with the ports that export selects. The error is a
// *model.NotExportableError, or that of Ports.
func LocalExport(self model.ClusterID, export *mcsv1beta1.ServiceExport, service *corev1.Service) (model.Export, error) {
	key := types.NamespacedName{Namespace: export.Namespace, Name: export.Name}
	if refused := model.CheckExportable(key, service); refused != nil {
		return model.Export{}, refused
	}
	ports, _, err := Ports(export, service)
	if err != nil {
		return model.Export{}, err
	}
	spec := &service.Spec
	out := model.Export{
		SourceExport: model.SourceExport{Cluster: self, UID: export.UID, CreatedAt: age(export.CreationTimestamp.Time)},
		Key:          key,
		ServiceProperties: model.ServiceProperties{
			Type: mcsv1beta1.ClusterSetIP, Ports: ports.Exported(service), IPFamilies: spec.IPFamilies, SessionAffinity: spec.SessionAffinity,
			InternalTrafficPolicy: spec.InternalTrafficPolicy, TrafficDistribution: spec.TrafficDistribution,
			Labels: model.Unreserved(export.Spec.ExportedLabels), Annotations: model.Unreserved(export.Spec.ExportedAnnotations),
		},
	}
	// A value that is too long stays invalid when it is shortened.
	out.Tiers = model.OneLine(export.Annotations[model.AnnotationTiers], model.MaxTiersBytes+len("…"))
	if spec.ClusterIP == corev1.ClusterIPNone {
		out.Type = mcsv1beta1.Headless
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		out.SessionAffinityConfig = spec.SessionAffinityConfig
	}
	return out, nil
}

// Ports are those of service that export shares (model.AnnotationExportPorts). It
// fails if the annotation cannot be read, or names no port that the Service has: then
// nothing may be exported, because what is not named is never shared. missing says
// which of the names no port has.
func Ports(export *mcsv1beta1.ServiceExport, service *corev1.Service) (selection model.PortSelection, missing string, err error) {
	const consequence = "; it is exported nowhere until that is corrected"
	if selection, err = model.PortsOfExport(export); err != nil {
		return model.PortSelection{}, "", fmt.Errorf("%w"+consequence, err)
	}
	missing = selection.Missing(types.NamespacedName{Namespace: export.Namespace, Name: export.Name}, service)
	if missing != "" && len(selection.Of(service)) == 0 {
		return model.PortSelection{}, "", errors.New(missing + consequence)
	}
	return selection, missing, nil
}

// AddSelector adds the selector of service and the targets of those ports that export
// shares. Importers that maintain selectors need them. It adds nothing if service has no
// selector.
func AddSelector(export *model.Export, service *corev1.Service) {
	if len(service.Spec.Selector) == 0 {
		return
	}
	export.Selector = service.Spec.Selector
	for _, port := range service.Spec.Ports {
		if slices.ContainsFunc(export.Ports, func(p mcsv1beta1.ServicePort) bool { return p.Name == port.Name }) {
			export.Targets = append(export.Targets, model.Target{ // with the API's defaults
				Port: port.Port, Protocol: cmp.Or(port.Protocol, corev1.ProtocolTCP), TargetPort: cmp.Or(port.TargetPort, intstr.FromInt32(port.Port)),
			})
		}
	}
}

// NamespaceProblem says why self cannot publish in the exchange namespace called
// name, nil if it does not exist; "" if it can. The agent may not create it:
// kubectl comity join does, together with its Roles.
func NamespaceProblem(self model.ClusterID, name string, namespace *corev1.Namespace) string {
	switch {
	case namespace == nil:
		return fmt.Sprintf("exchange namespace %s does not exist; run kubectl comity join", name)
	case namespace.DeletionTimestamp != nil:
		return fmt.Sprintf("exchange namespace %s is being deleted; run kubectl comity join once it is gone", name)
	case namespace.Labels[model.LabelExchangeFrom] != string(self):
		return fmt.Sprintf("namespace %s, label %s: is %q; expected %q; run kubectl comity join, or remove the namespace",
			name, model.LabelExchangeFrom, namespace.Labels[model.LabelExchangeFrom], self)
	}
	return ""
}

// ReservedNamespace reports whether nothing is imported into the namespace,
// whatever a peer publishes: it is one of Kubernetes' own.
func ReservedNamespace(name string) bool { return strings.HasPrefix(name, "kube-") }
