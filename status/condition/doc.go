// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package condition defines the conditions that Comity sets, and the reasons that each may
// have.
//
// It takes typed reasons, so that no condition can get a reason of another one, and gives
// metav1.Condition values without times. It is pure and decides nothing. Valid,
// Ready and Conflict follow KEP-1645 as sigs.k8s.io/mcs-api names it; the rest is ours.
package condition
