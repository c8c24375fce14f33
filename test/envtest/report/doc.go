// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package report proves, on two real API servers and with the rights of
// config/rbac and of a join, that each cluster reports to an exporter, and to
// nobody else, how it imports the export, that it renews its heartbeat, and that it
// writes nothing else once everything converged.
package report
