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
	// undefined says which definitions are missing; nil if none is.
	undefined error
	// checks say why a process with all definitions is not ready; none as long as it starts.
	checks []func() error
}

// set replaces what says which definitions are missing.
func (h *health) set(undefined error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.undefined = undefined
}

// started sets the checks.
func (h *health) started(checks ...func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = checks
}

// notReady returns why the process is not ready; nil if it is.
func (h *health) notReady() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.undefined == nil && h.checks == nil {
		return errors.New("starting")
	}
	err := h.undefined
	for _, check := range h.checks {
		if err == nil {
			err = check()
		}
	}
	return err
}

// serve listens on address until ctx ends.
func (h *health) serve(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
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

// watchDefinitions reports, until ctx ends, whenever it looks, what of required is missing, so that
// users see it, and logs what changed. Nothing of a running agent stops meanwhile: informers list again
// and queues retry until the kind is served. It calls start once an agent can start: without the
// definition of Peers it publishes, and evaluates policies, and reads no other cluster until they are
// defined.
func watchDefinitions(ctx context.Context, d discovery.DiscoveryInterface, interval time.Duration, log logr.Logger, report func(error), start func()) {
	var reported error
	started := false
	wait.UntilWithContext(ctx, func(context.Context) {
		absent, err := missing(d)
		if err != nil && started {
			return // it does not show that a definition is missing
		}
		if !started && err == nil && !slices.ContainsFunc(absent, func(name string) bool { return !strings.HasPrefix(name, "peers") }) {
			started = true
			defer start()
		}
		if len(absent) > 0 {
			err = fmt.Errorf("CustomResourceDefinitions are missing or older than mcs-api v0.5.2: %s: install them (config/crd), as the chart does (`comity install crds`); "+
				"Comity continues when they are served, without a restart", strings.Join(absent, ", "))
		}
		switch {
		case err != nil && (reported == nil || err.Error() != reported.Error()):
			log.Error(err, "not ready")
		case err == nil && reported != nil:
			log.Info("all CustomResourceDefinitions are served again")
		}
		report(err)
		reported = err
	}, interval)
}

// missing names what of required an API server does not serve, sorted.
func missing(d discovery.DiscoveryInterface) (absent []string, _ error) {
	for _, gv := range slices.Sorted(maps.Keys(required)) { // one outage always gives the same message
		list, err := d.ServerResourcesForGroupVersion(gv)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("the API server does not respond: %w", err)
		}
		for _, name := range required[gv] {
			served := list != nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
			if !served {
				absent = append(absent, name+"."+gv)
			}
		}
	}
	slices.Sort(absent)
	return absent, nil
}
