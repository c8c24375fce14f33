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

// Reasons for which a peer, or a part of what it publishes, cannot be read, beside
// InvalidRecord and LimitExceeded.
const (
	ReasonUnreachable      = "Unreachable"
	ReasonUnauthorized     = "Unauthorized"
	ReasonForbidden        = "Forbidden"
	ReasonNotInstalled     = "NotInstalled"
	ReasonMemberUnverified = "MemberUnverified"
	ReasonClusterIDReused  = "ClusterIDReused"
	ReasonHeartbeatMissing = "HeartbeatMissing"
)

// Failure is why a peer cannot be read, or is not Connected. Reason is one word;
// the zero value is no failure.
type Failure struct{ Reason, Message string }

// rejoin is the remedy for what joining makes.
const rejoin = "run kubectl comity join again"

// describe says why f cannot be read. It passes on no text of the peer's server,
// which would let a peer write into the events of this cluster.
func describe(id model.ClusterID, f *feed, err error) Failure {
	kept := "what was read before is kept"
	if f.without != "" {
		kept = "its exports are imported all the same, but " + f.without
	}
	failure := func(reason, problem, remedy string) Failure {
		return Failure{reason, fmt.Sprintf("%s in namespace %s of cluster %s: %s; %s; remedy: %s", f.kind, f.namespace, id, problem, kept, remedy)}
	}
	var status apierrors.APIStatus
	var mistyped *json.UnmarshalTypeError
	var noTime *time.ParseError
	var limit *budget.Exceeded
	switch in := "in cluster " + string(id); {
	case errors.As(err, &limit):
		return failure(model.ReasonLimitExceeded, limit.Error()+", so nothing new is read", "find out why so much is published "+in+", and withdraw what is not needed")
	case errors.As(err, &mistyped), errors.As(err, &noTime), errors.Is(err, errOtherKind):
		return failure(model.ReasonInvalidRecord, "one of them is of another kind, or holds a field of another type, than expected, so that none can be read", "correct or delete that object "+in+", or run the same version of Comity in both")
	case apierrors.IsForbidden(err):
		return failure(ReasonForbidden, "reading is forbidden; expected the Role that joining makes", rejoin)
	case apierrors.IsUnauthorized(err):
		return failure(ReasonUnauthorized, "the token is not accepted (expired or revoked)", rejoin)
	case apierrors.IsNotFound(err):
		return failure(ReasonNotInstalled, "the kind is unknown there; expected Comity's CRDs, in this version", "install or upgrade Comity "+in)
	case errors.As(err, &status):
		return failure(ReasonUnreachable, fmt.Sprintf("the server answers %d; expected a list", status.Status().Code), "check that API server")
	}
	return failure(ReasonUnreachable, fmt.Sprintf("the server cannot be reached (%s)", model.OneLine(err.Error(), 200)), "check the address in the Secret of the Peer, and the network")
}
