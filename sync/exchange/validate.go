// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
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
	maxTimeoutSecond = 86400 // one day, as the Service API has it
)

// MaxSliceNames is how many slices one record may name.
const MaxSliceNames = 2000

// uidPattern matches a UID that may be stored in an annotation and shown in a message.
// The API server assigns UIDs of 36 characters; other forms pass.
var uidPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// problem is the first field of a record that is not valid, and why; without a message,
// all fields that were checked are valid. The checks follow those of the Kubernetes API:
// the API server of a peer is not trusted to have validated the record.
type problem struct{ field, message string }

// check notes the problem of a field unless it is valid, or one was noted before. It
// returns valid. Strings in args are a peer's text, which it quotes and shortens.
func (p *problem) check(valid bool, field, format string, args ...any) bool {
	if valid || p.found() {
		return valid
	}
	for i, arg := range args {
		if text, is := arg.(string); is {
			args[i] = model.Quote(text)
		}
	}
	p.field, p.message = field, fmt.Sprintf(format, args...)
	return false
}

func (p *problem) found() bool { return p.message != "" }

// atMost notes the problem of a field that has more of something than it may have, and reports
// whether it has not.
func (p *problem) atMost(field, of string, count, limit int) bool {
	return p.check(count <= limit, field, "holds %d "+of+"; expected at most %d", count, limit)
}

// oneOf notes the problem of a field that has none of the values that it may have.
func oneOf[T ~string](p *problem, field string, value T, known ...T) {
	p.check(slices.Contains(known, value), field, "%s is unknown; expected one of %v", string(value), known)
}

// in is the error of a peer's record with the problem; nil without one.
func (p *problem) in(kind string, cluster model.ClusterID, record metav1.Object) error {
	if !p.found() {
		return nil
	}
	return fmt.Errorf("%s %s/%s of cluster %s: %s: %s; it is ignored until cluster %s publishes a valid one",
		kind, model.Quote(record.GetNamespace()), model.Quote(record.GetName()), cluster, p.field, p.message, cluster)
}

// checkRecord returns the first problem of a peer's record. It checks every value
// that is later written to an object of this cluster.
func checkRecord(record *exchangev1alpha1.ExportRecord) problem {
	var p problem
	spec := &record.Spec
	if spec.Type == invalidType && !spec.Withdrawn { // BoundRecord noted its problem, or a peer publishes it
		p.field, p.message, _ = strings.Cut(record.Annotations[model.AnnotationInvalidRecord], "\n")
	}
	p.checkIdentity(record.Name, spec.Service, spec.ExportUID)
	if p.found() || spec.Withdrawn {
		return p
	}
	p.check(!spec.ExportedAt.IsZero(), "spec.exportedAt", "is missing; expected the creation time of the ServiceExport")
	oneOf(&p, "spec.type", spec.Type, mcsv1beta1.ClusterSetIP, mcsv1beta1.Headless)
	p.checkPorts(spec.Type, spec.Ports)
	p.checkFamilies(spec.IPFamilies)
	p.checkAffinity(spec.SessionAffinity, spec.SessionAffinityConfig)
	if policy := spec.InternalTrafficPolicy; policy != nil {
		oneOf(&p, "spec.internalTrafficPolicy", *policy, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	if distribution := spec.TrafficDistribution; distribution != nil {
		oneOf(&p, "spec.trafficDistribution", *distribution,
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)
	}
	p.check(len(spec.Tiers) <= model.MaxTiersBytes+len("…") && utf8.ValidString(spec.Tiers),
		"spec.tiers", "holds %d bytes, or is no text; expected at most %d bytes of UTF-8", len(spec.Tiers), model.MaxTiersBytes)
	p.checkMap("spec.labels", spec.Labels, true)
	p.checkMap("spec.annotations", spec.Annotations, false)
	p.checkMap("spec.selector", spec.Selector, true)
	p.checkTargets(spec)
	p.checkSliceNames(spec.Slices)
	if spec.Namespace != nil {
		p.checkMap("spec.namespace.labels", spec.Namespace.Labels, true)
	}
	return p
}

// checkIdentity checks which export a record is about. The peer chose the namespace to
// import into (CVE-2026-66788): it has to be a valid name, not one of Kubernetes' own
// namespaces, and to match the name of the record, by which the record is looked up.
func (p *problem) checkIdentity(recordName string, ref exchangev1alpha1.ServiceReference, uid types.UID) {
	p.check(isLabel(ref.Namespace) && !ReservedNamespace(ref.Namespace),
		"spec.service.namespace", "%s is not the namespace of a user; expected an RFC 1123 label that does not begin with kube-", ref.Namespace)
	p.check(isLabel(ref.Name), "spec.service.name", "%s is not a Service name; expected an RFC 1123 label", ref.Name)
	if want := model.RecordName(ref.Namespace, ref.Name); recordName != want {
		p.check(false, "metadata.name", "is of another Service than %s in namespace %s; expected %s", ref.Name, ref.Namespace, want)
	}
	p.check(uidPattern.MatchString(string(uid)), "spec.exportUID", "%s is not a UID; expected 1 to 128 letters, digits, '.', '_' or '-'", string(uid))
}

// portNumber is the protocol and number of a port, unique in a Service.
type portNumber struct {
	protocol corev1.Protocol
	port     int32
}

func numberOf(protocol corev1.Protocol, port int32) portNumber {
	return portNumber{cmp.Or(protocol, corev1.ProtocolTCP), port}
}

func (p *problem) checkPorts(kind mcsv1beta1.ServiceImportType, ports []mcsv1beta1.ServicePort) {
	if !p.atMost("spec.ports", "ports", len(ports), maxPorts) {
		return
	}
	p.check(len(ports) > 0 || kind == mcsv1beta1.Headless,
		"spec.ports", "is empty; expected at least one port, as only a headless Service may have none")
	names, numbers := map[string]bool{}, map[portNumber]bool{}
	for i := range ports {
		port := &ports[i]
		n := numberOf(port.Protocol, port.Port)
		isNamed := port.Name == "" && len(ports) == 1 || isLabel(port.Name)
		isApp := port.AppProtocol == nil || len(validation.IsQualifiedName(*port.AppProtocol)) == 0
		p.check(isNamed && isApp && isPort(port.Port) && isProtocol(port.Protocol) && !names[port.Name] && !numbers[n], fmt.Sprintf("spec.ports[%d]", i),
			"%s (%d, protocol %s, appProtocol %s) is not valid; expected an RFC 1123 label as name, which only a single port may lack, a number from 1 to 65535, "+
				"protocol TCP, UDP or SCTP, and a qualified name or nothing as appProtocol; each name once, and each number and protocol (KEP-1645)",
			port.Name, port.Port, string(port.Protocol), ptr.Deref(port.AppProtocol, ""))
		names[port.Name], numbers[n] = true, true
	}
}

// checkTargets checks that every target is valid and belongs to one port, and that no
// port has two.
func (p *problem) checkTargets(spec *exchangev1alpha1.ExportRecordSpec) {
	if !p.check(len(spec.Targets) == 0 || len(spec.Selector) > 0 && len(spec.Targets) <= len(spec.Ports),
		"spec.targets", "holds %d targets; expected one for each port, and none without spec.selector", len(spec.Targets)) {
		return
	}
	open := map[portNumber]bool{}
	for i := range spec.Ports {
		open[numberOf(spec.Ports[i].Protocol, spec.Ports[i].Port)] = true
	}
	for i := range spec.Targets {
		t := &spec.Targets[i]
		n := numberOf(t.Protocol, t.Port)
		isTarget := isPort(t.TargetPort.IntVal)
		if t.TargetPort.Type == intstr.String {
			isTarget = len(validation.IsValidPortName(t.TargetPort.StrVal)) == 0
		}
		p.check(open[n] && isTarget, fmt.Sprintf("spec.targets[%d]", i), "%s of port %d, protocol %s, is not valid; expected the name of a container port, or 1 to 65535, of each of spec.ports at most once",
			t.TargetPort.String(), t.Port, string(t.Protocol))
		open[n] = false
	}
}

func (p *problem) checkFamilies(families []corev1.IPFamily) {
	isUnknown := func(f corev1.IPFamily) bool { return f != corev1.IPv4Protocol && f != corev1.IPv6Protocol }
	p.check(len(families) <= 2 && !slices.ContainsFunc(families, isUnknown) && (len(families) < 2 || families[0] != families[1]),
		"spec.ipFamilies", "is %s; expected IPv4, IPv6 or both, each once (KEP-1645)", model.Join(families, ","))
}

func (p *problem) checkAffinity(affinity corev1.ServiceAffinity, config *corev1.SessionAffinityConfig) {
	oneOf(p, "spec.sessionAffinity", cmp.Or(affinity, corev1.ServiceAffinityNone), corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP)
	seconds := ptr.Deref(ptr.Deref(ptr.Deref(config, corev1.SessionAffinityConfig{}).ClientIP, corev1.ClientIPConfig{}).TimeoutSeconds, 0)
	p.check(config == nil || affinity == corev1.ServiceAffinityClientIP && seconds >= 1 && seconds <= maxTimeoutSecond,
		"spec.sessionAffinityConfig", "has a timeout of %d s; expected 1 to %d with ClientIP, and no config with another spec.sessionAffinity", seconds, maxTimeoutSecond)
}

func (p *problem) checkSliceNames(names []string) {
	if !p.atMost("spec.slices", "names", len(names), MaxSliceNames) {
		return
	}
	for i, name := range names {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			p.check(false, fmt.Sprintf("spec.slices[%d]", i), "%s is not the name of an EndpointSlice; expected an RFC 1123 subdomain", name)
		}
	}
}

// checkMap checks the size, the keys and the values of labels, or of annotations: any text, with
// keys of which the API server ignores the case. It visits the keys in order, so that the first
// problem is always the same.
func (p *problem) checkMap(field string, m map[string]string, areLabels bool) {
	p.atMost(field, "entries", len(m), maxMapEntries)
	size := 0
	for _, key := range slices.Sorted(maps.Keys(m)) {
		size += len(key) + len(m[key])
		name := key
		if !areLabels {
			name = strings.ToLower(key)
		}
		p.check(len(validation.IsQualifiedName(name)) == 0 && utf8.ValidString(m[key]) && (!areLabels || isLabelValue(m[key])),
			field, "%s with the value %s is not valid; expected a qualified name such as example.com/team, and UTF-8 or, of a label, at most 63 letters, digits, '-', '_' or '.'", key, m[key])
	}
	p.atMost(field, "bytes", size, maxMapBytes)
}

func isLabel(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

func isLabelValue(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 }

func isPort(number int32) bool { return len(validation.IsValidPortNum(int(number))) == 0 }

func isProtocol(p corev1.Protocol) bool {
	return slices.Contains([]corev1.Protocol{"", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, p)
}

// invalidType is the type of a record that BoundRecord reduced. No valid record has it.
const invalidType mcsv1beta1.ServiceImportType = "comity.dev/invalid"

// BoundRecord returns what a reader uses of a peer's record: of its metadata what
// identifies it; of one that states a withdrawal, that; of one that is not valid, the
// export and the first problem, which FromRecord and Refusal return for the result as for
// record. In memory, thousands of empty ports take many times as much as in a response.
func BoundRecord(record *exchangev1alpha1.ExportRecord) *exchangev1alpha1.ExportRecord {
	out := &exchangev1alpha1.ExportRecord{
		TypeMeta: record.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: record.Namespace, Name: record.Name, UID: record.UID, ResourceVersion: record.ResourceVersion,
			Generation: record.Generation, CreationTimestamp: record.CreationTimestamp, DeletionTimestamp: record.DeletionTimestamp,
		},
		Spec: record.Spec,
	}
	out.Spec.ExportVersion, out.Spec.Lost = "", false // the publisher's own
	if record.Spec.Withdrawn {
		out.Spec = WithdrawnRecord(out.Spec, model.Withdrawal{Suspended: record.Spec.Suspended, Narrowed: record.Spec.Narrowed}, nil)
		return out
	}
	problem := checkRecord(out) // without annotations, which may be those of a reduced record
	if !problem.found() {
		return out
	}
	out.Spec = exchangev1alpha1.ExportRecordSpec{ServiceProperties: model.ServiceProperties{Type: invalidType}}
	if isIdentified(record) {
		out.Spec.Service, out.Spec.ExportUID = record.Spec.Service, record.Spec.ExportUID
	}
	out.Annotations = map[string]string{model.AnnotationInvalidRecord: problem.field + "\n" + problem.message}
	return out
}
