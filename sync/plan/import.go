// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// ImportInput is everything that decides what one import looks like here.
// Nothing in it is changed.
type ImportInput struct {
	// Key is the namespace and name of the exported Service. The namespace
	// must exist in this cluster.
	Key types.NamespacedName
	// Self is this cluster.
	Self model.ClusterID
	// Desired is the resolved import; nil if no export reaches this cluster.
	Desired *model.Import
	// Sources are the slices of each constituent: for Self the local slices of
	// the Service, for a peer the copies in its exchange, which name the slice
	// they were made from in model.AnnotationSourceSlice.
	Sources map[model.ClusterID][]*discoveryv1.EndpointSlice
	// Unread are the peers that were not read since start, in any order.
	// Nothing that came from them is written or deleted.
	Unread []model.ClusterID
	// Current is what exists in this cluster.
	Current Current
	// Taken are the names of derived Services that other imports of the
	// namespace have reserved, whether or not the Services exist yet.
	Taken []string
}

// Current is what exists of an import, whoever made it.
type Current struct {
	// Services are those of the namespace that are called
	// model.DerivedName(name) or model.AlternateDerivedName(name) and those
	// labelled model.LabelServiceName=name, in any order, each once.
	Services []*corev1.Service
	// Import is the ServiceImport called name; nil if there is none.
	Import *mcsv1beta1.ServiceImport
	// Slices are those of the namespace labelled model.LabelServiceName=name.
	Slices []*discoveryv1.EndpointSlice
}

// ImportPlan is what is outstanding for one import.
type ImportPlan struct {
	// Actions are to be made in this order; when one fails, those after it wait.
	// None means that the import is as it should be.
	Actions []Action
	// DerivedName is the name of the derived Service, which the caller keeps
	// reserved (ImportInput.Taken of other imports) while the import exists.
	// Empty if there is nothing to derive or no name is free.
	DerivedName string
	// AwaitsService is true if the ServiceImport cannot be written before the
	// API server has answered the actions on the derived Service, because its
	// cluster IPs are not known or because it is being replaced. Apply the
	// actions, put the returned Service into Current (or take a deleted one
	// out) and plan again.
	AwaitsService bool
	// Problems are for the reader of the import, in a fixed order.
	Problems []model.Problem
}

// Import plans one import.
func Import(in ImportInput) ImportPlan {
	panic("not written yet")
}
