// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package exchange converts between the objects of a cluster and the records that
// clusters publish.
//
// It takes ServiceExports, Services, EndpointSlices and records, and returns
// model.Exports, records and slice copies. It validates every field that a peer
// published; an invalid address is left out and the rest of its slice is kept. It
// is pure, and follows KEP-1645 and the EndpointSlice API.
package exchange
