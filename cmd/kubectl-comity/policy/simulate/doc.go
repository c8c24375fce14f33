// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate is `kubectl comity policy simulate`: what policies would do in
// clusters as they are now.
//
// It takes ExportPolicies from files and the contexts of clusters; it reads what the
// agents there decide on, with the credentials of the user, and gives what would be
// withdrawn, denied or allowed (package policies/preview). What only an agent knows, or
// the user may not read, is in the output as not known. It writes nothing.
package simulate
