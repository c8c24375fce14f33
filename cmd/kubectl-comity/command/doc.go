// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package command has what the commands of `kubectl comity` share: streams,
// kubeconfig flags, access to clusters by context name, printers and exit codes.
//
// It takes the flags and gives a Target for each context; an Error carries the
// exit code. It knows no command: cmd/kubectl-comity/app puts them together. It
// never writes to a cluster.
package command
