// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package diagnose is `kubectl comity diagnose`: what one export does not show.
//
// It takes sites and runs checks in each of them side by side, those of join, coredns and
// status among them, and gives a Report with one finding for each check: what is wrong,
// and the command that fixes it. A cluster that does not answer is a finding, too. It asks
// the API servers for rights, for whose tokens are and for the time, and writes nothing.
package diagnose
