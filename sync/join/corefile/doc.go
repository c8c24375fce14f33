// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package corefile edits CoreDNS's configuration so that it serves the clusterset's zone.
//
// Enable takes the text of a Corefile and gives it with the zone in the place
// where the cluster's own domain is served; Disable reverts that. Both change
// single words and lines, so comments and layout survive, and both check the
// result with the parser of github.com/coredns/corefile-migration. A Corefile in which
// that is not certain is refused with what to write by hand. It is pure.
package corefile
