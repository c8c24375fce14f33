// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// reasonPattern is one word, as the reason of a condition is here.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// ImportRecordSpec is what is published of report, which is about the export key.
func ImportRecordSpec(key types.NamespacedName, report model.Report) exchangev1alpha1.ImportRecordSpec {
	return exchangev1alpha1.ImportRecordSpec{
		Service:   exchangev1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name},
		ExportUID: report.ExportUID,
		Imported:  report.Imported,
		Reason:    report.Reason,
		Message:   cleanText(report.Message, maxMessage),
		Since:     metav1.NewTime(report.Since.UTC().Truncate(time.Second)),
	}
}

// FromImportRecord is what record, read from cluster, says of importing an
// export of this cluster. The error names the record, the field, what was
// expected and who has to act. The message of a report remains the peer's text:
// it is made fit for a condition here, and true only as far as the peer is.
func FromImportRecord(cluster model.ClusterID, record *exchangev1alpha1.ImportRecord) (types.NamespacedName, model.Report, error) {
	spec := &record.Spec
	problem := checkReference(record.Name, spec.Service)
	if problem == nil {
		problem = checkUID("spec.exportUID", spec.ExportUID)
	}
	if problem == nil {
		problem = checkReason(spec)
	}
	if problem != nil {
		return types.NamespacedName{}, model.Report{}, recordError("ImportRecord", cluster, record, problem)
	}
	report := model.Report{
		Cluster: cluster, ExportUID: spec.ExportUID, Imported: spec.Imported, Reason: spec.Reason,
		Message: cleanText(spec.Message, maxMessage), Since: plausible(spec.Since.Time),
	}
	return types.NamespacedName{Namespace: spec.Service.Namespace, Name: spec.Service.Name}, report, nil
}

func checkReason(spec *exchangev1alpha1.ImportRecordSpec) *problem {
	if !reasonPattern.MatchString(spec.Reason) {
		return problemf("spec.reason", "%s is no reason; expected one word of 1 to 64 letters", quoteShort(spec.Reason))
	}
	// The other way round there is nothing to say against: an export is imported
	// with a reason of another name when some of its endpoints are not.
	if !spec.Imported && spec.Reason == model.ReasonImported {
		return problemf("spec.reason", "is %s while spec.imported is false; expected why the export is not imported", spec.Reason)
	}
	return nil
}

// recordError is how a record of a peer that cannot be used is told of.
func recordError(kind string, cluster model.ClusterID, record metav1.Object, p *problem) error {
	return fmt.Errorf("%s %s/%s of cluster %s: %s: %s; it is ignored until cluster %s publishes a valid one",
		kind, quoteShort(record.GetNamespace()), quoteShort(record.GetName()), cluster, p.field, p.message, cluster)
}

// plausible leaves out a time that is no time at which Comity ran. It is only
// ever shown, never compared.
func plausible(t time.Time) time.Time {
	if y := t.UTC().Year(); y < 2000 || y > 2098 {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}

// cleanText makes text that nobody checked fit for a condition, an event or a
// terminal: one line of printable UTF-8, bounded. Characters that could hide or
// reorder what follows them are replaced.
func cleanText(text string, bytes int) string {
	if len(text) > 4*bytes {
		text = text[:4*bytes]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
	return model.Bound(strings.TrimSpace(text), bytes)
}

// Claim is what a peer says of itself. Nothing is decided by its address
// ranges: which addresses are accepted, only the local administrator says.
type Claim struct {
	ID         model.ClusterID
	ClusterSet string
	// ClusterUID is empty if the peer does not say.
	ClusterUID types.UID
	// Version is fit for a message.
	Version                string
	PodCIDRs, ServiceCIDRs []netip.Prefix
}

// FromNamespaceRecord is the identity labels that record, read from cluster, says
// its namespace has. The error names the record, the field, what was expected and
// who has to act.
func FromNamespaceRecord(cluster model.ClusterID, record *exchangev1alpha1.NamespaceRecord) (map[string]string, error) {
	labels := record.Spec.Labels
	if p := checkMap("spec.labels", labels, validation.IsQualifiedName, validation.IsValidLabelValue); p != nil {
		return nil, recordError("NamespaceRecord", cluster, record, p)
	}
	return labels, nil
}

// maxClaims bounds each list of address ranges in a MemberRecord.
const maxClaims = 64

// FromMemberRecord is what record, read from cluster, says of cluster. The
// error names the record, the field, what was expected and who has to act. It
// does not ask whether the id and the set are the expected ones, which is the
// reader's to do: there it means that a Secret leads to the wrong cluster.
func FromMemberRecord(cluster model.ClusterID, record *exchangev1alpha1.MemberRecord) (Claim, error) {
	claim, p := fromMember(&record.Spec)
	if p != nil {
		return Claim{}, recordError("MemberRecord", cluster, record, p)
	}
	return claim, nil
}

func fromMember(spec *exchangev1alpha1.MemberRecordSpec) (Claim, *problem) {
	claim := Claim{ClusterUID: spec.ClusterUID, ClusterSet: cleanText(spec.ClusterSet, 253), Version: cleanText(spec.Version, 64)}
	id, err := model.ParseClusterID(spec.ClusterID)
	if err != nil {
		return claim, problemf("spec.clusterID", "%s is no cluster id; expected one RFC 1123 label", quoteShort(spec.ClusterID))
	}
	claim.ID = id
	if claim.ClusterSet == "" || claim.ClusterSet != spec.ClusterSet {
		return claim, problemf("spec.clusterSet", "%s is no name of a set; expected 1 to 253 printable characters", quoteShort(spec.ClusterSet))
	}
	if spec.ClusterUID != "" {
		if p := checkUID("spec.clusterUID", spec.ClusterUID); p != nil {
			return claim, p
		}
	}
	var p *problem
	if claim.PodCIDRs, p = claimedPrefixes("spec.podCIDRs", spec.PodCIDRs); p != nil {
		return claim, p
	}
	claim.ServiceCIDRs, p = claimedPrefixes("spec.serviceCIDRs", spec.ServiceCIDRs)
	return claim, p
}

func claimedPrefixes(field string, texts []string) ([]netip.Prefix, *problem) {
	if len(texts) > maxClaims {
		return nil, problemf(field, "holds %d CIDRs; expected at most %d", len(texts), maxClaims)
	}
	var out []netip.Prefix
	for i, text := range texts {
		prefix, err := parsePrefix(text)
		if err != nil {
			return nil, &problem{fmt.Sprintf("%s[%d]", field, i), err.Error()}
		}
		out = append(out, prefix)
	}
	return out, nil
}
