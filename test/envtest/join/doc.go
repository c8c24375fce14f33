// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package join proves, on real API servers, what joined clusters may do to each
// other and what they may not.
package join
