// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

// ExportState is the row of the export table that applies to one ServiceExport, or to
// one exchange namespace in which it is published. The words are those of the docs.
type ExportState string

// The zero value is invalid, so that a forgotten field is noticed. The first row that
// matches applies.
const (
	// ExportDuplicate: another cluster has the id of this one.
	ExportDuplicate ExportState = "Duplicate"
	// ExportUnknown: the API server did not say whether the ServiceExport exists, or a
	// cache is behind it.
	ExportUnknown ExportState = "Unknown"
	// ExportUndefined: the definition of ServiceExports is missing or terminating.
	ExportUndefined ExportState = "Undefined"
	// ExportLost: the ServiceExport disappeared with a restore of the store, or with its
	// definition.
	ExportLost ExportState = "Lost"
	// ExportEnded: there is no ServiceExport.
	ExportEnded ExportState = "Ended"
	// ExportNoService: its Service is missing or terminating.
	ExportNoService ExportState = "NoService"
	// ExportNotExportable: its Service cannot be exported.
	ExportNotExportable ExportState = "NotExportable"
	// ExportInvalid: its annotations, or those of its Namespace, allow no cluster or port.
	ExportInvalid ExportState = "Invalid"
	// ExportInGrace: policies deny it, after a grace period.
	ExportInGrace ExportState = "InGrace"
	// ExportDenied: policies deny it.
	ExportDenied ExportState = "Denied"
	// ExportNotEvaluated: policies could not be evaluated.
	ExportNotEvaluated ExportState = "NotEvaluated"
	// ExportPublished: none of the above.
	ExportPublished ExportState = "Published"

	// The rest are rows of one exchange namespace.

	// ExportUnavailable: nothing can be written in the exchange namespace.
	ExportUnavailable ExportState = "Unavailable"
	// ExportMoved: the readers find the export in another exchange namespace.
	ExportMoved ExportState = "Moved"
	// ExportReaderUnknown: the reader is no member now, and no list leaves it out.
	ExportReaderUnknown ExportState = "ReaderUnknown"
	// ExportOutOfScope: the reader is not in the scope.
	ExportOutOfScope ExportState = "OutOfScope"
)

// String is the word of the table.
func (s ExportState) String() string { return string(s) }
