// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package scenario is the specification of what clusters decide, by example.
//
// Each file in testdata holds one rule of KEP-1645 or of Comity: its title, a
// link to the section, the items of the checklist that it shows, the exports of
// some clusters, and the import and the conflicts that they give. With a file
// here.yaml it also shows what one cluster writes and which objects it then has,
// while others are lost, unread or removed. A test holds every item of the
// checklist to a scenario or to the suite that has it. The tests read the files, shuffle the exports and compare; with
// -rewrite they write the results into the files instead. A naive oracle checks the same
// rules on random exports. There is no code outside the tests.
package scenario
