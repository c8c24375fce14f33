// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package crd embeds the CustomResourceDefinitions of Comity, one YAML document
// a file, as controller-gen writes them. The MCS API's own come from
// sigs.k8s.io/mcs-api/config/crd and are never redefined here.
package crd

import "embed"

// FS holds the definitions, *.yaml in its root.
//
//go:embed *.yaml
var FS embed.FS
