// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// announce writes one event about each problem that prevents an import for which
// there is no ServiceImport of Comity's, whose conditions would say it: on the
// object of somebody else that is the cause.
func (i *importController) announce(key types.NamespacedName, current plan.Current, problems []model.Problem) {
	if current.Import != nil && model.IsManaged(current.Import) || len(problems) == 0 {
		i.announced.Delete(key)
		return
	}
	var text string
	for _, p := range problems {
		if decide.Obstacle(p.Reason, current) != nil {
			text += p.Message
		}
	}
	if before, known := i.announced.Swap(key, text); text == "" || known && before == text {
		return
	}
	for _, p := range problems {
		if object := decide.Obstacle(p.Reason, current); object != nil {
			i.Recorder.Eventf(object, nil, corev1.EventTypeWarning, p.Reason, "Import", "%s", model.Bound(p.Message, 1000))
		}
	}
}
