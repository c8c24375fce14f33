// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

// Reasons for which a peer, or a part of what it publishes, cannot be read.
const (
	ReasonUnreachable      = "Unreachable"
	ReasonUnauthorized     = "Unauthorized"
	ReasonForbidden        = "Forbidden"
	ReasonNotInstalled     = "NotInstalled"
	ReasonMemberUnverified = "MemberUnverified"
	ReasonClusterIDReused  = "ClusterIDReused"
	ReasonHeartbeatMissing = "HeartbeatMissing"
	ReasonInvalidRecord    = model.ReasonInvalidRecord
	ReasonLimitExceeded    = model.ReasonLimitExceeded
)

// Failure is why a peer cannot be read, or is not Connected. Reason is one word;
// the zero value is no failure.
type Failure struct{ Reason, Message string }

// describe says why f cannot be read. It passes on no text of the peer's server,
// which would let a peer write into the events of this cluster.
func describe(id model.ClusterID, f *feed, err error) Failure {
	what := fmt.Sprintf("%s in namespace %s of cluster %s: ", f.kind, f.namespace, id)
	kept := "what was read before is kept"
	if f.without != "" {
		kept = "its exports are imported all the same, but " + f.without
	}
	var status apierrors.APIStatus
	var mistyped *json.UnmarshalTypeError
	var noTime *time.ParseError
	var limit *budget.Exceeded
	switch {
	case errors.As(err, &limit):
		return Failure{ReasonLimitExceeded, what + limit.Error() + ", so nothing new is read; " + kept +
			"; remedy: find out why cluster " + string(id) + " publishes so much, and withdraw what is not needed"}
	case errors.As(err, &mistyped), errors.As(err, &noTime):
		return Failure{ReasonInvalidRecord, what + "one of them holds a field of another type than expected, so that none can be read; " + kept +
			"; remedy: correct or delete that object in cluster " + string(id) + ", or run the same version of Comity in both"}
	case apierrors.IsForbidden(err):
		return Failure{ReasonForbidden, what + "reading is forbidden; expected the Role that joining makes; " + kept + "; remedy: run kubectl comity join again"}
	case apierrors.IsUnauthorized(err):
		return Failure{ReasonUnauthorized, what + "the token is not accepted (expired or revoked); expected a valid one; " + kept + "; remedy: run kubectl comity join again"}
	case apierrors.IsNotFound(err) && f.without != "":
		return Failure{ReasonNotInstalled, what + "the kind is unknown there; expected this version of Comity; " + kept + "; remedy: upgrade Comity in that cluster"}
	case apierrors.IsNotFound(err):
		return Failure{ReasonNotInstalled, what + "the kind is unknown there; expected Comity's CRDs; " + kept + "; remedy: install Comity in that cluster"}
	case errors.As(err, &status):
		return Failure{ReasonUnreachable, fmt.Sprintf("%sthe server answers %d; expected a list; %s; remedy: check that API server", what, status.Status().Code, kept)}
	}
	return Failure{ReasonUnreachable, fmt.Sprintf("%sthe server cannot be reached (%s); %s; remedy: check the address in the Secret of the Peer and the network",
		what, model.OneLine(err.Error(), 200), kept)}
}
