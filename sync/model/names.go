// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/adler32"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// FieldOwner is the field manager of every object that Comity applies. Comity
// manages an object in a user's namespace only if this manager applied it.
const FieldOwner = "comity"

// Labels and annotations that KEP-1645 or the original Sveltos pipeline define.
const (
	LabelServiceName      = mcsv1beta1.LabelServiceName
	LabelSourceCluster    = mcsv1beta1.LabelSourceCluster
	LabelServiceImported  = "multicluster.kubernetes.io/service-imported"
	AnnotationDerivedName = "multicluster.kubernetes.io/derived-service"
)

// Labels of a Peer that kubectl comity join sets, for selectors (KEP-2149 names).
const (
	LabelClusterID  = "cluster.clusterset.k8s.io"
	LabelClusterSet = "clusterset.k8s.io"
)

// ExchangeSecret is the Secret, in Comity's own namespace, with the kubeconfig
// by which a member reaches the hub, where there is one.
const ExchangeSecret = "comity-exchange"

// Labels and annotations of Comity.
const (
	// AnnotationExportTo, on a ServiceExport, limits the export to the listed
	// clusters; on a Namespace, it limits every export of that namespace.
	AnnotationExportTo = "comity.dev/export-to"
	// LabelExportTo is a label that users set instead of AnnotationExportTo. A label
	// value cannot have commas, so the mutating webhook moves it to the annotation.
	LabelExportTo = "export-to"
	// LabelExportNamespace and LabelExportName, on a slice in an exchange namespace,
	// name the export that it belongs to.
	LabelExportNamespace = "comity.dev/export-namespace"
	LabelExportName      = "comity.dev/export-name"
	// AnnotationSourceSlice is the name of the slice that was copied or mirrored.
	AnnotationSourceSlice = "comity.dev/source-slice"
	// AnnotationInvalidRecord, on a peer's ExportRecord in the cache, is the first problem
	// of one that is not valid, of which nothing else is kept. It is never written.
	AnnotationInvalidRecord = "comity.dev/invalid-record"
	// AnnotationApplied, on every object that Comity applies, is a digest of the
	// names of the fields that it applied last. It changes if a field is no longer
	// applied, and does not if others add fields.
	AnnotationApplied = "comity.dev/applied"
	// LabelExchangeFrom and LabelExchangeTo, on an exchange namespace, are the
	// cluster that publishes there and the only one that reads it (absent: every
	// peer).
	LabelExchangeFrom = "comity.dev/exchange-from"
	LabelExchangeTo   = "comity.dev/exchange-to"
	// AnnotationExportToSelector, on a ServiceExport, limits the export to the
	// clusters whose Peer has matching labels; with AnnotationExportTo, to
	// those that both allow.
	AnnotationExportToSelector = "comity.dev/export-to-selector"
	// AnnotationExportPorts, on a ServiceExport, names the ports of the Service that
	// are exported, separated by commas; all are without it.
	AnnotationExportPorts = "comity.dev/export-ports"
	// AnnotationImportFrom, on a Namespace, limits what is imported into it to the
	// listed clusters; without it, it is imported from every member.
	AnnotationImportFrom = "comity.dev/import-from"
	// AnnotationDeniedSince, on an ExportRecord, is since when policies with a grace
	// period deny the export that is still published: as JSON, RFC 3339 times by policy.
	AnnotationDeniedSince = "comity.dev/denied-since"
	// AnnotationKept, on an ExportRecord, is which violations policies with existing: Keep keep;
	// see decision.Verdict.Kept.
	AnnotationKept = "comity.dev/kept"
	// AnnotationExcluded, on an ExportRecord, is to which clusters policies forbid the export,
	// separated by commas. It counts for those that are no member now.
	AnnotationExcluded = "comity.dev/excluded"
	// AnnotationTiers, on a ServiceImport, a ServiceExport or a Namespace, is which source
	// clusters the import uses before which others: see Tiers. On a derived Service it is
	// what is in force.
	AnnotationTiers = "comity.dev/tiers"
	// AnnotationOnLost, on a ServiceImport or its Namespace, says what to do with
	// the endpoints of a lost cluster: one of the values of OnLost.
	AnnotationOnLost = "comity.dev/on-lost"
	// AnnotationClusterUID, on a Lease or a Namespace of the exchange, is the UID of the
	// kube-system namespace of the cluster that publishes there.
	AnnotationClusterUID = "comity.dev/cluster-uid"
	// AnnotationCatchingUp, on a Lease of the exchange, says that the agent has not reported
	// on all exports yet since it started: that a report is missing means nothing.
	AnnotationCatchingUp = "comity.dev/catching-up"
	// AnnotationList, on a derived Service and, as a copy, on its ServiceImport, is the
	// List of the import.
	AnnotationList = "comity.dev/exports"
	// AnnotationConfirmLost, on an ExportRecord that is lost, is set to "true" by an
	// administrator of the publisher: its ServiceExport is gone, and the export is
	// withdrawn (kubectl comity confirm lost).
	AnnotationConfirmLost = "comity.dev/confirm-lost"
	// AnnotationPublished, on a derived slice whose endpoints are not ready because of
	// Traffic, has the conditions that their cluster published: one digit for each endpoint,
	// the sum of 4 if it was ready, 2 if it was serving and 1 if it was terminating.
	AnnotationPublished = "comity.dev/published-conditions"
	// AnnotationDrained, on a MemberRecord, is set by an administrator of the member to a
	// Drained as JSON: it drains itself for all others.
	AnnotationDrained = "comity.dev/drained"
	// AnnotationConfirmTakeover, on a ServiceImport, is set by an administrator to
	// "<cluster>/<uid>" of the ServiceExport that is to decide the import.
	AnnotationConfirmTakeover = "comity.dev/confirm-takeover"
	// AnnotationTokenExpiry and AnnotationTokenAudiences, on the ServiceAccount of a
	// peer, are the lifetime (a Go duration) and the audiences, separated by commas,
	// of the token that `kubectl comity join` issued for it. A policy of the API
	// server (config/admission) allows the account no others.
	AnnotationTokenExpiry    = "comity.dev/token-expiry"
	AnnotationTokenAudiences = "comity.dev/token-audiences"
	// AnnotationAdopting, on an object that another pipeline created, means that
	// Comity is adopting it: Comity manages it already, but labels, annotations
	// and field ownership of the former owner are still to be removed.
	AnnotationAdopting = "comity.dev/adopting"
	// LabelSelectsNothing, as the only key of a Service's selector, matches no
	// pod. It is set while a selector is being removed.
	LabelSelectsNothing = "comity.dev/selects-nothing"
	// LabelIdentity is the namespace label compared by namespace sameness
	// unless other keys are configured.
	LabelIdentity = "comity.dev/identity"
)

// ManagedBy is the value of app.kubernetes.io/managed-by and
// endpointslice.kubernetes.io/managed-by on objects that Comity creates.
const ManagedBy = "comity"

// DerivedName is the name that the derived Service of an import called name
// has, unless another import of the namespace already has it: "derived-" and
// the Adler-32 sum of the name in decimal, as Sprig's adler32sum prints it.
func DerivedName(name string) string {
	return fmt.Sprintf("derived-%d", adler32.Checksum([]byte(name)))
}

// AlternateDerivedName is the name used if DerivedName is not free. It depends on
// name alone, so that it is the same after a restart.
func AlternateDerivedName(name string) string {
	return DerivedName(name) + "-" + Hash(name, 4)
}

// SliceName is the name of the mirrored EndpointSlice of one source slice of
// cluster. The first slice of a derived Service that has its plain name is
// called <derived>-<cluster>, as the Sveltos pipeline calls it; all others are
// joined with dots, which occur in neither part, so that no two are equal.
func SliceName(derived string, plain bool, cluster ClusterID, sourceSlice string) string {
	if plain && strings.Count(derived, "-") == 1 {
		return derived + "-" + string(cluster)
	}
	return derived + "." + string(cluster) + "." + Hash(sourceSlice, 4)
}

// CompareKeys orders by namespace, then name.
func CompareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// RecordName is the name of the ExportRecord of namespace/name. Neither part
// can hold a dot, so two exports never share a record.
func RecordName(namespace, name string) string { return name + "." + namespace }

// RecordKey is the inverse of RecordName. False for a name that RecordName does not make.
func RecordKey(record string) (types.NamespacedName, bool) {
	name, namespace, ok := strings.Cut(record, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok && name != "" && namespace != ""
}

// LabeledExport is the export in the labels of a published slice. False if a label is missing.
func LabeledExport(labels map[string]string) (types.NamespacedName, bool) {
	key := types.NamespacedName{Namespace: labels[LabelExportNamespace], Name: labels[LabelExportName]}
	return key, key.Namespace != "" && key.Name != ""
}

// RecordSliceName is the name, in an exchange namespace, of the copy of an
// EndpointSlice. A namespace has no dot, so the first dot ends it. Names that
// would exceed the limit of 253 characters are shortened to a hash.
func RecordSliceName(namespace, slice string) string {
	if full := namespace + "." + slice; len(full) <= 253 {
		return full
	}
	return namespace + "." + Hash(slice, 20)
}

// ExchangeNamespace is the namespace in which from publishes what every peer
// may read.
func ExchangeNamespace(from ClusterID) string {
	return exchangeNamespace(string(from), "from "+string(from), ambiguous(from))
}

// ScopedExchangeNamespace is the namespace in which from publishes what to
// alone may read.
func ScopedExchangeNamespace(from, to ClusterID) string {
	return exchangeNamespace(string(from)+"-to-"+string(to), "from "+string(from)+" to "+string(to), ambiguous(from) || ambiguous(to))
}

// exchangeNamespace has a readable name, or else a hash of a unique one.
func exchangeNamespace(readable, unique string, isAmbiguous bool) string {
	if !isAmbiguous && len(readable) <= 56 {
		return "comity-" + readable
	}
	return "comity-x-" + Hash(unique, 20)
}

// ambiguous reports whether a readable name made of id could be taken for that
// of another pair of clusters ("a-to-b"), for a hash ("x-0123"), or for Comity's
// own namespace, comity-system. The names of such ids, and those longer than a
// namespace may be, are hashes.
func ambiguous(id ClusterID) bool {
	return id == "system" || strings.Contains("-"+string(id)+"-", "-to-") || strings.HasPrefix(string(id), "x-")
}

// PeerName is the name of what belongs to one peer: its ServiceAccount, Role and
// RoleBindings, and the Secret with the credential for it.
func PeerName(id ClusterID) string { return bounded("peer-", id) }

// MemberName is the name of a member's account in the hub, and of what belongs
// to it. It is no PeerName, so that the hub may be a member's own cluster too.
func MemberName(id ClusterID) string { return bounded("member-", id) }

// bounded is prefix and id in at most 63 characters: a longer name ends in a hash behind a
// dot, which no id contains.
func bounded(prefix string, id ClusterID) string {
	if full := prefix + string(id); len(full) <= 63 {
		return full
	}
	suffix := "." + Hash(string(id), 20)
	return strings.TrimRight((prefix + string(id))[:63-len(suffix)], "-") + suffix
}

// Hash is that many bytes of a digest, in hexadecimal.
func Hash(text string, bytes int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:bytes])
}

// IsManaged reports whether Comity made the object: whether FieldOwner applied the
// object itself and not merely a subresource such as its status. Labels prove
// nothing, for anybody may set them.
func IsManaged(object metav1.Object) bool {
	return AppliedBy(object, FieldOwner, "")
}

// AppliedBy reports whether a field manager applied the object, or a subresource of it.
func AppliedBy(object metav1.Object, manager, subresource string) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == subresource
	})
}

// IsByOthers reports whether an entry of the managedFields of an object is about the object, or a
// subresource of it, and is not that of Comity's apply.
func IsByOthers(entry metav1.ManagedFieldsEntry, subresource string) bool {
	return entry.Subresource == subresource && (entry.Manager != FieldOwner || entry.Operation != metav1.ManagedFieldsOperationApply)
}

// OwnerOf names who made an object, as far as its metadata says so.
func OwnerOf(object metav1.Object) string {
	if release := object.GetAnnotations()["meta.helm.sh/release-name"]; release != "" {
		return "Helm release " + object.GetAnnotations()["meta.helm.sh/release-namespace"] + "/" + release
	}
	if by := object.GetLabels()["app.kubernetes.io/managed-by"]; by != "" {
		return by
	}
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" {
			return "field owner " + entry.Manager
		}
	}
	return "something else"
}

// StatusOf is what is applied to give the very version of object that was read a status, which
// is a pointer: a stale cache must not make the same transition, and its event, twice.
func StatusOf(object metav1.Object, kind schema.GroupVersionKind, status any) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		panic(err) // it is no pointer to a struct: a programming error
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(object.GetNamespace())
	u.SetName(object.GetName())
	u.SetUID(object.GetUID())
	u.SetResourceVersion(object.GetResourceVersion())
	return u
}

// Stamped sets the generation and the time of conditions that are to replace the stored ones. One
// that was taken over as it is stored keeps both; lastTransitionTime moves only with the status.
func Stamped(conditions, stored []metav1.Condition, generation int64, now metav1.Time) []metav1.Condition {
	for i := range conditions {
		c := &conditions[i]
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.ObservedGeneration, c.LastTransitionTime = generation, now
		if was := meta.FindStatusCondition(stored, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
	return conditions
}

// reservedDomains are those, with their subdomains, of labels and annotations that are
// not copied to another cluster.
var reservedDomains = sets.New(
	// What Kubernetes, the MCS API and Comity read: kube-proxy, for one, ignores slices
	// with certain labels of service.kubernetes.io.
	"service.kubernetes.io", "endpointslice.kubernetes.io", "multicluster.kubernetes.io", "comity.dev",
	// By these, Argo CD, Flux, Helm, Sveltos, Fleet, kapp, kubectl, and what is based on
	// cli-utils find the objects that they applied, to delete those that are no longer
	// wanted. They would delete a copy, and a member could attach its slices to any application.
	"argoproj.io", "fluxcd.io", "fluxcd.controlplane.io", "helm.sh", "projectsveltos.io", "cattle.io", "k14s.io",
	"kubectl.kubernetes.io", "applyset.kubernetes.io", "config.kubernetes.io", "config.k8s.io", "configsync.gke.io", "configmanagement.gke.io",
)

// reservedKeys are single ones, for the same reasons.
var reservedKeys = sets.New(discoveryv1.LabelServiceName, "app.kubernetes.io/instance", "app.kubernetes.io/managed-by")

// Reserved reports whether a label or annotation of an EndpointSlice or of an export means
// something to software that reads or applies objects, and therefore must not be copied to
// another cluster.
func Reserved(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	for more := true; more; _, domain, more = strings.Cut(domain, ".") {
		if reservedDomains.Has(domain) {
			return true
		}
	}
	return reservedKeys.Has(key)
}

// Unreserved are the labels or annotations that may be copied to another cluster. Only the
// administrator of that cluster may configure how it treats an import.
func Unreserved(in map[string]string) map[string]string {
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(key, _ string) bool { return Reserved(key) })
	return out
}

// ReservedOf says which labels and annotations that a ServiceExport wants to export are
// not; empty if all are. The text names object, fields and what to do.
func ReservedOf(export *mcsv1beta1.ServiceExport) string {
	var fields []string
	add := func(field string, in map[string]string) {
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(in)), func(key string) bool { return !Reserved(key) })
		if len(keys) > 0 {
			fields = append(fields, field+": "+quoted(keys))
		}
	}
	add("spec.exportedLabels", export.Spec.ExportedLabels)
	add("spec.exportedAnnotations", export.Spec.ExportedAnnotations)
	if len(fields) == 0 {
		return ""
	}
	return fmt.Sprintf("ServiceExport %s/%s, %s: not exported, because Kubernetes, Comity, or a tool such as Argo CD, Flux or Helm would act on it in other clusters; remove it",
		export.Namespace, export.Name, strings.Join(fields, "; "))
}
