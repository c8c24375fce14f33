// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/status/condition"
)

// maxEventReason is the API's limit on the reason of an event, in characters.
const maxEventReason = 128

// recordEvents records one event per transition of an object of that kind. Reason
// and message are the condition's; the events API also wants an action, its type.
func recordEvents(ctx context.Context, recorder events.EventRecorder, object client.Object, kind string, moved []metav1.Condition) {
	for _, c := range moved {
		logger(ctx).Info("condition changed", "condition", c.Type, "status", c.Status, logReason, c.Reason)
		recorder.Eventf(object, nil, eventType(kind, c), eventReason(c.Reason), c.Type, "%s", c.Message)
	}
}

// eventType is Warning for a state that needs attention.
func eventType(kind string, c metav1.Condition) string {
	bad := c.Status != metav1.ConditionTrue
	switch {
	case condition.Quiet(kind, c):
		bad = false
	case c.Type == condition.TypeConflict, c.Type == condition.TypeSourceMissing, c.Type == condition.TypeFrozen, c.Type == condition.TypeTakeoverHeld,
		c.Reason == condition.ReasonAdmittedWithWarnings:
		bad = c.Status == metav1.ConditionTrue
	}
	if bad {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// eventReason drops whole words of a list of reasons until it fits.
func eventReason(reason string) string {
	for len(reason) > maxEventReason {
		cut := strings.LastIndexByte(reason, ',')
		if cut < 0 {
			return reason[:maxEventReason]
		}
		reason = reason[:cut]
	}
	return reason
}
