// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package chart proves the life of a release: install, upgrade, rollback,
// uninstall, another release, and installation without Helm.
//
// It takes a Docker engine, kind, the chart of the repository and the image that
// the project builds, and starts one cluster with real cert-manager. Clusters
// that are joined are package e2e's. It deletes the cluster that it made.
package chart
