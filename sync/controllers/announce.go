// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
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
			i.Recorder.Eventf(object, nil, corev1.EventTypeWarning, p.Reason, "Import", "%s", model.Bound(p.Message, model.MaxEventNote))
		}
	}
}

// Bounds of the events on sources that are kept out: one policy may keep out
// every source of every import.
const (
	refusalsPerSecond = 5
	refusalsAtOnce    = 50
)

// refusals knows which sources of imports are kept out, as events said it.
type refusals struct {
	said    *sync.Map // types.NamespacedName → string
	limiter flowcontrol.PassiveRateLimiter
}

func newRefusals() refusals {
	return refusals{&sync.Map{}, flowcontrol.NewTokenBucketPassiveRateLimiter(refusalsPerSecond, refusalsAtOnce)}
}

func (r refusals) forget(key types.NamespacedName) { r.said.Delete(key) }

// keepsOut reports whether nothing, or nothing new, is imported from the source that a
// problem of this reason is about, by what the administrators of this cluster said.
func keepsOut(reason string) bool {
	switch reason {
	case model.ReasonPolicyDenied, model.ReasonNotEvaluated, model.ReasonNamespaceUnknown, model.ReasonNamespaceNotAccepted:
		return true
	}
	return false
}

// announceRefused writes an event about each source that is kept out, or may be,
// when one begins to be kept out, or for another cause. It is on the ServiceImport,
// also if there is none because no other source is left: it is in its namespace, and
// found by its name.
func (i *importController) announceRefused(key types.NamespacedName, imported *mcsv1beta1.ServiceImport, problems []model.Problem) {
	var out []model.Problem
	var text []string
	for _, p := range problems {
		if keepsOut(p.Reason) {
			out, text = append(out, p), append(text, p.Reason+" "+p.Message)
		}
	}
	if len(out) == 0 {
		i.refused.forget(key)
		return
	}
	before, _ := i.refused.said.Swap(key, strings.Join(text, "\n"))
	said, _ := before.(string)
	if imported == nil {
		imported = &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	}
	for n, p := range out {
		if !strings.Contains(said, text[n]) && i.refused.limiter.TryAccept() {
			i.Recorder.Eventf(imported, nil, corev1.EventTypeWarning, p.Reason, "Import", "%s", model.Bound(p.Message, model.MaxEventNote))
		}
	}
}
