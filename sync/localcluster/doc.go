// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package localcluster reads the properties of this cluster on which importing
// depends: the IP families of its Services, its zones, and its address ranges.
//
// It takes Nodes, ServiceCIDRs and the Service default/kubernetes from the
// manager's cache, or flags in their place; it gives a model.LocalCluster that is kept
// current on every replica. It writes nothing and never guesses: what it has not
// read is empty. It follows KEP-1880 (ServiceCIDR) for the order of families.
package localcluster
