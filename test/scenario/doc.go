// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package scenario is the specification of conflict resolution by example.
//
// Each file in testdata holds one rule of KEP-1645: its title, a link to the
// section, the exports of some clusters, and the import and the conflicts that
// they give. The tests read the files, shuffle the exports and compare; with
// -rewrite they write what they find instead. A naive oracle checks the same
// rules on exports that nobody thought of. There is no code outside the tests.
package scenario
