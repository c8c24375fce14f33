// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package install applies to an API server what the agent needs there and what
// a chart cannot contain as ordinary templates: CustomResourceDefinitions, which
// must be served before objects of their kinds can be applied, and
// ExportPolicies, which are such objects. The chart runs it in two Jobs.
//
// It takes the definitions that the binary embeds, or a file of ExportPolicies,
// and gives one line of output for each object. Everything is written by
// server-side apply as field owner comity-install. It never deletes a
// definition, never replaces one with an older version, and never changes a
// definition or a policy that something else installed.
//
// The rights that it needs, all in the cluster scope:
//
//	crds:
//	  apiextensions.k8s.io  customresourcedefinitions  get, create, patch
//	    resourceNames: the names of the definitions; a creation by server-side
//	    apply is authorized with its name.
//	policies:
//	  policy.comity.dev          exportpolicies  get, list, create, patch, delete
//	  rbac.authorization.k8s.io  clusterroles    get
//	    resourceNames: that of --owner-cluster-role
package install
