// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// health serves /healthz and /readyz from the start of the process. A process that
// waits for a CRD is alive and not ready, with the reason in the response, so the
// kubelet does not restart it.
type health struct {
	mu sync.Mutex
	// state is why the process is not ready, whatever the checks say; nil if they decide.
	state error
	// checks are complete before state is nil for the first time.
	checks []func() error
}

// set replaces the state.
func (h *health) set(state error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = state
}

// notReady returns the state, or the error of the first check that fails; nil if none does.
func (h *health) notReady() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != nil {
		return h.state
	}
	for _, check := range h.checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// serve listens on address until ctx ends.
func (h *health) serve(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve /healthz and /readyz: %w", err)
	}
	mux := http.NewServeMux()
	// A client that closed the connection needs no response.
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := h.notReady(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return probe.Serve(ctx, listener, mux)
}

// knownPeers is what readiness needs of members.Set.
type knownPeers interface {
	// Listed is closed once the Peers present at start were read.
	Listed() <-chan struct{}
	Members() []model.Member
}

// peersRead is a check for readiness: nil once every peer was read, or this time after
// this call, and from then on. Before that a policy would see
// the namespaces of peers as unknown and pass them over, where a replica that runs
// for longer refuses.
func peersRead(peers knownPeers, clk clock.PassiveClock, within time.Duration) func() error {
	start := clk.Now()
	var done atomic.Bool // a peer that joins later, or stops responding, changes nothing
	return func() error {
		if done.Load() {
			return nil
		}
		var err error
		select {
		case <-peers.Listed():
			missing := model.Without(peers.Members(), func(m model.Member) bool { return m.Synced })
			if len(missing) > 0 {
				ids := model.Map(missing, func(m model.Member) model.ClusterID { return m.ID })
				err = fmt.Errorf("peers are not read yet: %s", model.Join(ids, ", "))
			}
		default:
			err = errors.New("the Peers are not read yet")
		}
		if left := within - clk.Since(start); err != nil && left > 0 {
			return fmt.Errorf("%w; waiting for at most %s more", err, left.Round(time.Second))
		}
		done.Store(true)
		return nil
	}
}

// required are the resources that a ready agent needs. An outdated definition lacks the status
// subresource.
var required = map[string][]string{
	mcsv1beta1.GroupVersion.String():       {"serviceexports", "serviceexports/status", "serviceimports", "serviceimports/status"},
	policyv1alpha1.GroupVersion.String():   {"exportpolicies", "exportpolicies/status"},
	exchangev1alpha1.GroupVersion.String(): {"exportrecords", "importrecords", "namespacerecords", "memberrecords", "peers", "peers/status"},
}

// startsWithout reports whether an agent can start although err names what is not served:
// without the definition of Peers it publishes, and evaluates policies, and reads no other
// cluster until they are defined.
func startsWithout(err error) bool {
	absent, is := errors.AsType[*undefined](err)
	return is && !slices.ContainsFunc(absent.names, func(name string) bool {
		return !strings.HasPrefix(name, "peers.") && !strings.HasPrefix(name, "peers/")
	})
}

// crdWatch reports which definitions are missing.
type crdWatch struct {
	discovery discovery.DiscoveryInterface
	log       logr.Logger
	// report receives what is missing, and nil if nothing is.
	report func(error)
	// reported is what it received last.
	reported error
}

// update reports what is missing, and logs a change.
func (w *crdWatch) update(missing error) {
	if missing != nil && (w.reported == nil || missing.Error() != w.reported.Error()) {
		w.log.Error(missing, "not ready")
	}
	w.report(missing)
	w.reported = missing
}

// await ends once the resources are served without which no controller can start.
func (w *crdWatch) await(ctx context.Context, interval time.Duration) error {
	return wait.PollUntilContextCancel(ctx, interval, true, func(context.Context) (bool, error) {
		err := missing(w.discovery)
		if startsWithout(err) {
			err = nil // watch reports it
		}
		w.update(err)
		return err == nil, nil
	})
}

// watch makes a running agent not ready while a definition is missing, so that users see which
// one. Nothing else stops: informers list again and queues retry until the kind is served.
func (w *crdWatch) watch(ctx context.Context, interval time.Duration) {
	wait.UntilWithContext(ctx, func(context.Context) {
		err := missing(w.discovery)
		switch {
		case err != nil && !errors.As(err, new(*undefined)):
			return // it does not show that a definition is missing
		case err == nil && w.reported != nil:
			w.log.Info("all CustomResourceDefinitions are served again")
		}
		w.update(err)
	}, interval)
}

// missing returns an error that names what is not served, nil if nothing is
// missing.
func missing(d discovery.DiscoveryInterface) error {
	var absent []string
	// Sorted, so that one outage always gives the same message.
	for _, gv := range slices.Sorted(maps.Keys(required)) {
		list, err := d.ServerResourcesForGroupVersion(gv)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("the API server does not respond: %w", err)
		}
		for _, name := range required[gv] {
			served := list != nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
			if !served {
				absent = append(absent, name+"."+gv)
			}
		}
	}
	if len(absent) == 0 {
		return nil
	}
	slices.Sort(absent)
	return &undefined{names: absent}
}

// undefined is the error of an API server that responds and lacks definitions.
type undefined struct{ names []string }

// Error names what is not served, and the remedy.
func (u *undefined) Error() string {
	return fmt.Sprintf("CustomResourceDefinitions are missing or older than mcs-api v0.5.2: %s: install them (config/crd), as the chart does (`comity install crds`); "+
		"Comity continues when they are served, without a restart", strings.Join(u.names, ", "))
}
