// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package report proves, on two real API servers and with the rights of
// config/rbac and of a join, that clusters tell each other what came of their
// exports and that they are there, to whom they tell it, and that they then stay quiet.
package report
