// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests_test hands every manifest that users apply to a real API
// server, as `kubectl apply --dry-run=server --validate=strict` does: each
// kustomization below config, and what the chart renders to.
//
// It takes etcd, kube-apiserver and kubectl from package binaries, in the version
// that COMITY_KUBERNETES chooses, and Helm. It gives the fields and values that this
// version of Kubernetes does not accept, and its warnings. It never skips.
package manifests_test
