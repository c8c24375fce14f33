// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// SourceExport is one export of which an import that exists here consists.
type SourceExport struct {
	Cluster ClusterID
	// UID and CreatedAt are those of the ServiceExport; empty if they are not known,
	// as of an import that an earlier version of Comity made.
	UID       types.UID
	CreatedAt time.Time
	// Scoped is that of Export.
	Scoped bool
}

// scopedMark follows the creation time of an export that is Scoped.
const scopedMark = "scoped"

// ID is "<cluster>/<uid>", as AnnotationConfirmTakeover names an export.
func (e SourceExport) ID() string { return string(e.Cluster) + "/" + string(e.UID) }

// FormatSourceExports is the value of AnnotationExports: "a/<uid>/<creation time>",
// with "/scoped" if the export is, separated by commas, in the order given.
func FormatSourceExports(exports []SourceExport) string {
	parts := make([]string, len(exports))
	for i, e := range exports {
		parts[i] = fmt.Sprintf("%s/%s/%s", e.Cluster, e.UID, e.CreatedAt.UTC().Format(time.RFC3339))
		if e.Scoped {
			parts[i] += "/" + scopedMark
		}
	}
	return strings.Join(parts, ",")
}

// ParseSourceExports reads the value of AnnotationExports. The items that cannot be
// read, because somebody changed them, are left out: of what they named, nothing
// but its cluster is known, from the objects that exist.
func ParseSourceExports(text string) []SourceExport {
	var out []SourceExport
	for item := range strings.SplitSeq(text, ",") {
		parts := strings.Split(item, "/")
		scoped := len(parts) == 4 && parts[3] == scopedMark
		if len(parts) != 3 && !scoped || parts[1] == "" {
			continue
		}
		id, err := ParseClusterID(parts[0])
		created, bad := time.Parse(time.RFC3339, parts[2])
		if err != nil || bad != nil {
			continue
		}
		out = append(out, SourceExport{Cluster: id, UID: types.UID(parts[1]), CreatedAt: created.UTC(), Scoped: scoped})
	}
	return out
}

// ImportedFrom are the clusters of whose exports a ServiceImport consists, as its status
// and its annotation say, some of them twice; none of one that Comity does not manage.
func ImportedFrom(imported *mcsv1beta1.ServiceImport) []ClusterID {
	if !IsManaged(imported) {
		return nil
	}
	var out []ClusterID
	for _, c := range imported.Status.Clusters {
		out = append(out, ClusterID(c.Cluster))
	}
	for _, e := range ParseSourceExports(imported.Annotations[AnnotationExports]) {
		out = append(out, e.Cluster)
	}
	return out
}
