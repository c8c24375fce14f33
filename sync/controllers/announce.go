// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// announceJoined writes an event on the ServiceImport about each export that it consists of
// from now on, too.
func (i *importController) announceJoined(imported *mcsv1beta1.ServiceImport, joined []model.SourceExport) {
	for _, e := range joined {
		if imported != nil {
			i.Recorder.Eventf(imported, nil, corev1.EventTypeNormal, model.ReasonExportJoined, "Import",
				"cluster %s exports this Service, too, and its endpoints are used from now on (UID %s, created %s)",
				e.Cluster, e.UID, e.CreatedAt.UTC().Format(time.RFC3339))
		}
	}
}

// announce writes an event about each problem that was not there before and that no condition
// of a ServiceImport of Comity's can say: about what prevents the import, on the object of
// somebody else that is the cause; and about a source that is kept out, on the ServiceImport,
// also if there is none because no other source is left.
func (i *importController) announce(key types.NamespacedName, current plan.Current, before, now []model.Problem) {
	imported := current.Import
	isOwn := imported != nil && model.IsManaged(imported)
	if imported == nil {
		imported = &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	}
	for _, p := range now {
		if slices.ContainsFunc(before, func(b model.Problem) bool { return b.Reason == p.Reason && b.Message == p.Message }) {
			continue
		}
		var object runtime.Object = imported
		if !keepsOut(p.Reason) {
			if object = decide.Obstacle(p.Reason, current); object == nil || isOwn {
				continue
			}
		}
		i.Recorder.Eventf(object, nil, corev1.EventTypeWarning, p.Reason, "Import", "%s", model.Bound(p.Message, model.MaxEventNote))
	}
}

// keepsOut reports whether nothing, or nothing new, is imported from the source that a
// problem of this reason is about, by what the administrators of this cluster said.
func keepsOut(reason string) bool {
	switch reason {
	case model.ReasonPolicyDenied, model.ReasonNotEvaluated, model.ReasonNamespaceUnknown, model.ReasonNamespaceNotAccepted:
		return true
	}
	return false
}
