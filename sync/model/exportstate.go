// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// ExportState is the row of the export table that applies to one ServiceExport, or to
// one exchange namespace in which it is published. The words are those of the docs.
type ExportState int

// The zero value is invalid, so that a forgotten field is noticed. The first row that
// matches applies.
const (
	// ExportDuplicate: another cluster has the id of this one.
	ExportDuplicate ExportState = iota + 1
	// ExportUnknown: the API server did not say whether the ServiceExport exists, or a
	// cache is behind it.
	ExportUnknown
	// ExportUndefined: the definition of ServiceExports is missing or terminating.
	ExportUndefined
	// ExportLost: the ServiceExport disappeared with a restore of the store, or with its
	// definition.
	ExportLost
	// ExportEnded: there is no ServiceExport.
	ExportEnded
	// ExportNoService: its Service is missing or terminating.
	ExportNoService
	// ExportNotExportable: its Service cannot be exported.
	ExportNotExportable
	// ExportInvalid: its annotations, or those of its Namespace, allow no cluster or port.
	ExportInvalid
	// ExportInGrace: policies deny it, after a grace period.
	ExportInGrace
	// ExportDenied: policies deny it.
	ExportDenied
	// ExportNotEvaluated: policies could not be evaluated.
	ExportNotEvaluated
	// ExportPublished: none of the above.
	ExportPublished

	// The rest are rows of one exchange namespace.

	// ExportUnavailable: nothing can be written in the exchange namespace.
	ExportUnavailable
	// ExportMoved: the readers find the export in another exchange namespace.
	ExportMoved
	// ExportReaderUnknown: the reader is no member now, and no list leaves it out.
	ExportReaderUnknown
	// ExportOutOfScope: the reader is not in the scope.
	ExportOutOfScope
)

var exportStates = map[ExportState]string{
	ExportDuplicate: "Duplicate", ExportUnknown: "Unknown", ExportUndefined: "Undefined", ExportLost: "Lost", ExportEnded: "Ended",
	ExportNoService: "NoService", ExportNotExportable: "NotExportable", ExportInvalid: "Invalid", ExportInGrace: "InGrace", ExportDenied: "Denied",
	ExportNotEvaluated: "NotEvaluated", ExportPublished: "Published",
	ExportUnavailable: "Unavailable", ExportMoved: "Moved", ExportReaderUnknown: "ReaderUnknown", ExportOutOfScope: "OutOfScope",
}

// String is the word of the table.
func (s ExportState) String() string {
	if name, ok := exportStates[s]; ok {
		return name
	}
	return fmt.Sprintf("ExportState(%d)", int(s))
}
