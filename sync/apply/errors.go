// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// Class says how to handle an error. It is the result label of the metric.
type Class string

const (
	// Conflict means that the object is not the one that was planned for, or that an object
	// to create exists: it is foreign, or Comity created it and the cache does not show it
	// yet. Read and plan again at once; if it is foreign, the next plan has a problem for it.
	Conflict Class = "conflict"
	// NamespaceMissing means that the namespace does not exist or is being deleted.
	// Wait for an event of the namespace.
	NamespaceMissing Class = "namespace"
	// Refused means that the API server refuses the object until it, a permission or
	// an admission rule changes. Report it and retry rarely.
	Refused Class = "refused"
	// Unavailable is any other error. Retry with backoff.
	Unavailable Class = "unavailable"
)

// Error is an action that failed. Its text names the verb, the object and the
// API server's answer.
type Error struct {
	Action plan.Action
	Class  Class
	err    error
}

// Error names the action and the cause.
func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Action, e.err) }

// Unwrap returns the API server's error.
func (e *Error) Unwrap() error { return e.err }

// ClassOf returns the class of the first Error in err's chain, and Unavailable if
// there is none. Of the error of Apply that is the class of the write at which it
// stopped, if it did.
func ClassOf(err error) Class {
	if e, is := errors.AsType[*Error](err); is {
		return e.Class
	}
	return Unavailable
}

// Refusals returns the problems with an import that the refused writes in the error
// of Apply are. Of each source cluster there is one, sorted by cluster.
func Refusals(err error) []model.Problem {
	refused := map[model.ClusterID][]string{}
	if joined, is := err.(interface{ Unwrap() []error }); is { // as Apply does
		for _, one := range joined.Unwrap() {
			if e, is := errors.AsType[*Error](one); is && e.Class == Refused {
				refused[e.Action.Source] = append(refused[e.Action.Source], e.Error())
			}
		}
	}
	var out []model.Problem
	for _, source := range slices.Sorted(maps.Keys(refused)) {
		texts := refused[source]
		message := texts[0]
		if source != "" {
			message = fmt.Sprintf("the API server refuses EndpointSlices of cluster %s (%d), whose endpoints in them are missing or as they were: %s",
				source, len(texts), texts[0])
		}
		out = append(out, model.Problem{Reason: model.ReasonRefused, Cluster: source, Message: message})
	}
	return out
}

// classify follows this table; the first match wins:
//
//	answer                                             class
//	403 NamespaceTerminating, 404 about the namespace  NamespaceMissing
//	409                                                Conflict
//	404 but on create                                  Conflict: somebody deleted the object after the plan was made
//	422 because of the UID                             Conflict: the object was made again
//	400, 403, 413, other 422                           Refused
//	anything else                                      Unavailable
func classify(verb plan.Verb, err error) Class {
	var details metav1.StatusDetails
	if answer := apierrors.APIStatus(nil); errors.As(err, &answer) && answer.Status().Details != nil {
		details = *answer.Status().Details
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err) && details.Kind == "namespaces":
		return NamespaceMissing
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err),
		// Where the CRD of the kind does not exist, no handler serves the path, and the answer is not a Status of the API.
		apierrors.IsNotFound(err) && verb != plan.Create && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse),
		apierrors.IsInvalid(err) && slices.ContainsFunc(details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" }):
		return Conflict
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return Refused
	}
	return Unavailable
}
