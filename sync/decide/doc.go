// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package decide says what should exist, given what this cluster knows.
//
// It takes a view: plain values that were read of one export, one import or one
// report. It gives the input of package plan, and what to report of the key. It decides
// which exports an import consists of, who decides it and what is published where; which
// writes lead there, under which names and in which order, is package plan's. The
// controllers and the simulator call the same functions. It is pure: the same
// view always gives the same decision. It follows KEP-1645 and the rule
// that what was not read is never treated as absent.
package decide
