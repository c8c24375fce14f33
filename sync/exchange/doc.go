// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package exchange converts between what clusters hold and what they publish.
//
// It takes ServiceExports, Services, EndpointSlices and records; it gives
// model.Exports, records and slice copies. Everything that comes from a peer is
// validated field by field, and one bad address never costs the rest of its
// slice. It is pure, and follows KEP-1645 and the EndpointSlice API.
package exchange
