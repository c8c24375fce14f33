// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errFenced is the error of a write that leaderFence refused.
var errFenced = errors.New("not written: this replica has not renewed its Lease in time, and another replica may lead")

// leaderFence refuses writes of a replica that may no longer be the leader. A
// process that was suspended has queued work and outdated caches. Without the
// fence it would write before it notices that another replica holds the Lease.
type leaderFence struct {
	now func() time.Time
	// deadline is that of Timing.RenewDeadline.
	deadline time.Duration
	// renewed is when the last successful renewal was sent; nil before this
	// replica leads. A replica that never led may write, as all replicas do.
	renewed atomic.Pointer[time.Time]
}

// election wraps the transport of leader election and records renewals.
func (f *leaderFence) election(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		sent := f.now()
		response, err := next.RoundTrip(r)
		if err == nil && mutates(r) && response.StatusCode < 300 && strings.Contains(r.URL.Path, "/leases") {
			f.renewed.Store(&sent)
		}
		return response, err
	})
}

// refusal is errFenced if the last renewal is older than the deadline: by the monotonic clock, which
// nobody sets, or by that of the wall, which goes on while the machine is suspended.
func (f *leaderFence) refusal(context.Context) error {
	renewed, now := f.renewed.Load(), f.now()
	if renewed == nil || now.Sub(*renewed) <= f.deadline && now.Round(0).Sub(renewed.Round(0)) <= f.deadline {
		return nil
	}
	return errFenced
}

// refusing wraps the transport of all clients but those of leader election and of peers:
// writes fail with the error of a refusal that has one.
func refusing(refusals ...func(context.Context) error) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			for _, refusal := range refusals {
				if !mutates(r) {
					break
				}
				if err := refusal(r.Context()); err != nil {
					if r.Body != nil {
						_ = r.Body.Close() // a RoundTripper must close the body, also on an error
					}
					return nil, err
				}
			}
			return next.RoundTrip(r)
		})
	}
}

func mutates(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// ownNamespace refuses all writes while the namespace of Comity is being deleted, or
// is gone. The Secrets of Peers are deleted with it, and its rights: what is computed
// from the rest of them is nobody's decision. A namespace that is deleted by mistake
// must withdraw no export and remove no import.
type ownNamespace struct {
	name   string
	log    logr.Logger
	reader client.Reader // the cache of the manager
	gone   atomic.Bool   // as it was logged
}

// refusal is the API server's error for a write into a namespace that is being deleted,
// which is retried rarely and quietly; nil if the namespace stays.
func (n *ownNamespace) refusal(ctx context.Context) error {
	var found corev1.Namespace
	err := n.reader.Get(ctx, types.NamespacedName{Name: n.name}, &found, &client.GetOptions{UnsafeDisableDeepCopy: new(true)})
	gone := apierrors.IsNotFound(err) || err == nil && found.DeletionTimestamp != nil
	before := n.gone.Swap(gone)
	if !gone {
		if before {
			n.log.Info("the namespace of Comity exists again, writing again", "name", n.name)
		}
		return nil
	}
	refused := apierrors.NewForbidden(corev1.Resource("namespaces"), n.name, errors.New("the Namespace in which Comity runs is being deleted"))
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	if !before {
		n.log.Error(refused, "nothing is written any more")
	}
	return refused
}
