// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Limits on one record. They are far above what people need, and keep an object that
// results from a hostile record small enough for etcd.
const (
	maxPorts         = 1000
	maxMapEntries    = 200
	maxMapBytes      = 64 << 10
	maxUIDLength     = 128
	maxTimeoutSecond = 86400 // one day, as the Service API has it
)

// MaxSliceNames is how many slices one record may name.
const MaxSliceNames = 2000

var uidPattern = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// problem is a field that is not valid, and why.
type problem struct{ field, message string }

func problemf(field, format string, args ...any) *problem {
	return &problem{field: field, message: fmt.Sprintf(format, args...)}
}

// checkRecord returns the first problem of a peer's record. It checks every value
// that is later written to an object of this cluster: the API server of the peer is
// not trusted to have validated the record.
func checkRecord(record *exchangev1alpha1.ExportRecord) *problem {
	spec := &record.Spec
	checks := []func() *problem{
		func() *problem { return notedProblem(record) },
		func() *problem { return checkReference(record.Name, spec.Service) },
		func() *problem { return checkIdentity(spec) },
		func() *problem { return checkPorts(spec.Type, spec.Ports) },
		func() *problem { return checkFamilies(spec.IPFamilies) },
		func() *problem { return checkAffinity(spec.SessionAffinity, spec.SessionAffinityConfig) },
		func() *problem { return checkTraffic(spec.InternalTrafficPolicy, spec.TrafficDistribution) },
		func() *problem {
			return checkMap("spec.labels", spec.Labels, validation.IsQualifiedName, validation.IsValidLabelValue)
		},
		func() *problem { return checkMap("spec.annotations", spec.Annotations, isAnnotationKey, nil) },
		func() *problem {
			return checkMap("spec.selector", spec.Selector, validation.IsQualifiedName, validation.IsValidLabelValue)
		},
		func() *problem { return checkTargets(spec) },
		func() *problem { return checkSliceNames(spec.Slices) },
		func() *problem { return checkNamespaceLabels("spec.namespace.labels", spec.Namespace) },
	}
	for _, check := range checks {
		if p := check(); p != nil {
			return p
		}
	}
	return nil
}

// checkReference checks the namespace to import into, which the peer chose
// (CVE-2026-66788). It has to be a valid name, not one of Kubernetes' own namespaces,
// and to match the name of the record, by which the record is looked up.
func checkReference(recordName string, ref exchangev1alpha1.ServiceReference) *problem {
	if errs := validation.IsDNS1123Label(ref.Namespace); len(errs) > 0 {
		return problemf("spec.service.namespace", "%s is not a namespace name; expected an RFC 1123 label", model.Quote(ref.Namespace))
	}
	if ReservedNamespace(ref.Namespace) {
		return problemf("spec.service.namespace", "%q is a namespace of Kubernetes itself; expected a user's namespace", ref.Namespace)
	}
	if errs := validation.IsDNS1123Label(ref.Name); len(errs) > 0 {
		return problemf("spec.service.name", "%s is not a Service name; expected an RFC 1123 label", model.Quote(ref.Name))
	}
	if want := model.RecordName(ref.Namespace, ref.Name); recordName != want {
		return problemf("metadata.name", "does not belong to Service %s/%s; expected %q", ref.Namespace, ref.Name, want)
	}
	return nil
}

// ValidUID reports whether a peer's UID may be stored in an annotation and shown
// in a message. The API server assigns UIDs of 36 characters; other forms pass.
func ValidUID(uid types.UID) bool {
	return len(uid) <= maxUIDLength && uidPattern.MatchString(string(uid))
}

func checkUID(field string, uid types.UID) *problem {
	if !ValidUID(uid) {
		return problemf(field, "%s is not a UID; expected 1 to %d letters, digits, '.', '_' or '-'", model.Quote(string(uid)), maxUIDLength)
	}
	return nil
}

func checkIdentity(spec *exchangev1alpha1.ExportRecordSpec) *problem {
	if p := checkUID("spec.exportUID", spec.ExportUID); p != nil {
		return p
	}
	if spec.ExportedAt.IsZero() {
		return problemf("spec.exportedAt", "is missing; expected the creation time of the ServiceExport")
	}
	if spec.Type != mcsv1beta1.ClusterSetIP && spec.Type != mcsv1beta1.Headless {
		return problemf("spec.type", "%s is unknown; expected ClusterSetIP or Headless", model.Quote(string(spec.Type)))
	}
	return nil
}

// portNumber is the protocol and number of a port, unique in a Service.
type portNumber struct {
	protocol corev1.Protocol
	port     int32
}

func checkPorts(kind mcsv1beta1.ServiceImportType, ports []mcsv1beta1.ServicePort) *problem {
	if len(ports) > maxPorts {
		return problemf("spec.ports", "holds %d ports; expected at most %d", len(ports), maxPorts)
	}
	if len(ports) == 0 && kind != mcsv1beta1.Headless {
		return problemf("spec.ports", "is empty; expected at least one port, as only a headless Service may have none")
	}
	names, numbers := map[string]bool{}, map[portNumber]bool{}
	for i := range ports {
		port := &ports[i]
		field := fmt.Sprintf("spec.ports[%d]", i)
		if p := checkPort(field, port, len(ports) == 1); p != nil {
			return p
		}
		n := portNumber{protocolOrTCP(port.Protocol), port.Port}
		switch {
		case names[port.Name]:
			return problemf(field+".name", "%q occurs twice; expected different names (KEP-1645)", port.Name)
		case numbers[n]:
			return problemf(field+".port", "%s %d occurs twice; expected each protocol and port once (KEP-1645)", n.protocol, n.port)
		}
		names[port.Name], numbers[n] = true, true
	}
	return nil
}

func checkPort(field string, port *mcsv1beta1.ServicePort, only bool) *problem {
	if port.Name == "" && !only {
		return problemf(field+".name", "is empty; expected a name, as there are several ports")
	}
	if port.Name != "" && len(validation.IsDNS1123Label(port.Name)) > 0 {
		return problemf(field+".name", "%s is not a port name; expected an RFC 1123 label", model.Quote(port.Name))
	}
	if port.Port < 1 || port.Port > 65535 {
		return problemf(field+".port", "%d is not a port number; expected 1 to 65535", port.Port)
	}
	switch port.Protocol {
	case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		return problemf(field+".protocol", "%s is unknown; expected TCP, UDP or SCTP", model.Quote(string(port.Protocol)))
	}
	if port.AppProtocol != nil && len(validation.IsQualifiedName(*port.AppProtocol)) > 0 {
		return problemf(field+".appProtocol", "%s is not a qualified name; expected one such as \"http\" or \"example.com/proto\"", model.Quote(*port.AppProtocol))
	}
	return nil
}

// checkTargets checks that every target is valid and belongs to one port, and that no
// port has two.
func checkTargets(spec *exchangev1alpha1.ExportRecordSpec) *problem {
	if len(spec.Targets) > 0 && len(spec.Selector) == 0 {
		return problemf("spec.targets", "are set although spec.selector is empty; expected none")
	}
	open := map[portNumber]bool{}
	for i := range spec.Ports {
		open[portNumber{protocolOrTCP(spec.Ports[i].Protocol), spec.Ports[i].Port}] = true
	}
	for i := range spec.Targets {
		t := &spec.Targets[i]
		field := fmt.Sprintf("spec.targets[%d]", i)
		n := portNumber{protocolOrTCP(t.Protocol), t.Port}
		if !open[n] {
			return problemf(field, "is for port %d of protocol %s; expected each of spec.ports at most once", t.Port, model.Quote(string(t.Protocol)))
		}
		open[n] = false
		switch named := t.TargetPort.Type == intstr.String; {
		case named && len(validation.IsValidPortName(t.TargetPort.StrVal)) > 0:
			return problemf(field+".targetPort", "%s is not the name of a container port; expected an IANA service name", model.Quote(t.TargetPort.StrVal))
		case !named && (t.TargetPort.IntVal < 1 || t.TargetPort.IntVal > 65535):
			return problemf(field+".targetPort", "%d is not a port number; expected 1 to 65535", t.TargetPort.IntVal)
		}
	}
	return nil
}

func checkFamilies(families []corev1.IPFamily) *problem {
	if len(families) > 2 {
		return problemf("spec.ipFamilies", "holds %d families; expected at most 2", len(families))
	}
	for i, family := range families {
		field := fmt.Sprintf("spec.ipFamilies[%d]", i)
		if family != corev1.IPv4Protocol && family != corev1.IPv6Protocol {
			return problemf(field, "%s is unknown; expected IPv4 or IPv6", model.Quote(string(family)))
		}
		if slices.Contains(families[:i], family) {
			return problemf(field, "%s occurs twice; expected each family once (KEP-1645)", family)
		}
	}
	return nil
}

func checkAffinity(affinity corev1.ServiceAffinity, config *corev1.SessionAffinityConfig) *problem {
	switch affinity {
	case "", corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP:
	default:
		return problemf("spec.sessionAffinity", "%s is unknown; expected None or ClientIP", model.Quote(string(affinity)))
	}
	if config == nil {
		return nil
	}
	if affinity != corev1.ServiceAffinityClientIP {
		return problemf("spec.sessionAffinityConfig", "is set although spec.sessionAffinity is not ClientIP; expected none")
	}
	if config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return problemf("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "is missing; expected 1 to %d", maxTimeoutSecond)
	}
	if s := *config.ClientIP.TimeoutSeconds; s < 1 || s > maxTimeoutSecond {
		return problemf("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "is %d; expected 1 to %d", s, maxTimeoutSecond)
	}
	return nil
}

func checkTraffic(policy *corev1.ServiceInternalTrafficPolicy, distribution *string) *problem {
	if policy != nil && *policy != corev1.ServiceInternalTrafficPolicyCluster && *policy != corev1.ServiceInternalTrafficPolicyLocal {
		return problemf("spec.internalTrafficPolicy", "%s is unknown; expected Cluster or Local", model.Quote(string(*policy)))
	}
	known := []string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode}
	if distribution != nil && !slices.Contains(known, *distribution) {
		return problemf("spec.trafficDistribution", "%s is unknown; expected %s", model.Quote(*distribution), strings.Join(known, ", "))
	}
	return nil
}

func checkSliceNames(names []string) *problem {
	if len(names) > MaxSliceNames {
		return problemf("spec.slices", "holds %d names; expected at most %d", len(names), MaxSliceNames)
	}
	for i, name := range names {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			return problemf(fmt.Sprintf("spec.slices[%d]", i), "%s is not the name of an EndpointSlice; expected an RFC 1123 subdomain", model.Quote(name))
		}
	}
	return nil
}

func checkNamespaceLabels(field string, namespace *exchangev1alpha1.NamespaceRecordSpec) *problem {
	if namespace == nil {
		return nil
	}
	return checkMap(field, namespace.Labels, validation.IsQualifiedName, validation.IsValidLabelValue)
}

// checkMap checks the size of labels or annotations, their keys and, if checkValue is
// not nil, their values. It visits the keys in order, so that the first problem is
// always the same.
func checkMap(field string, m map[string]string, checkKey, checkValue func(string) []string) *problem {
	if len(m) > maxMapEntries {
		return problemf(field, "holds %d entries; expected at most %d", len(m), maxMapEntries)
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := m[key]
		size += len(key) + len(value)
		if len(checkKey(key)) > 0 {
			return problemf(field, "key %s is not a qualified name; expected one such as \"example.com/team\"", model.Quote(key))
		}
		if !utf8.ValidString(value) {
			return problemf(field, "the value of %q is not UTF-8", key)
		}
		if checkValue != nil && len(checkValue(value)) > 0 {
			return problemf(field, "the value %s of %q is not a label value; expected at most 63 letters, digits, '-', '_' or '.'", model.Quote(value), key)
		}
	}
	if size > maxMapBytes {
		return problemf(field, "holds %d bytes; expected at most %d", size, maxMapBytes)
	}
	return nil
}

// isAnnotationKey checks as the API server does, which ignores the case.
func isAnnotationKey(key string) []string { return validation.IsQualifiedName(strings.ToLower(key)) }
