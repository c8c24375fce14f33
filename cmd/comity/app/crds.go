// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// required returns the resources that a ready agent needs. An outdated definition lacks
// the status subresource.
func required() map[string][]string {
	return map[string][]string{
		mcsv1beta1.GroupVersion.String():       {"serviceexports", "serviceexports/status", "serviceimports", "serviceimports/status"},
		policyv1alpha1.GroupVersion.String():   {"exportpolicies", "exportpolicies/status"},
		exchangev1alpha1.GroupVersion.String(): {"exportrecords", "importrecords", "namespacerecords", "memberrecords", "peers", "peers/status"},
	}
}

// startsWithout reports whether an agent can start although err names what is not served:
// without the definition of Peers it publishes, and evaluates policies, and reads no other
// cluster until they are defined.
func startsWithout(err error) bool {
	var absent *undefined
	return errors.As(err, &absent) && !slices.ContainsFunc(absent.names, func(name string) bool {
		return !strings.HasPrefix(name, "peers.") && !strings.HasPrefix(name, "peers/")
	})
}

// crdWatch reports which definitions are missing.
type crdWatch struct {
	discovery discovery.DiscoveryInterface
	// interval is how often it checks.
	interval time.Duration
	log      logr.Logger
	// report receives what is missing, and nil if nothing is.
	report func(error)
}

// wait waits until the resources are served without which no controller can start, and
// logs what is missing.
func (w crdWatch) wait(ctx context.Context) error {
	said := ""
	return wait.PollUntilContextCancel(ctx, w.interval, true, func(context.Context) (bool, error) {
		err := missing(w.discovery)
		if startsWithout(err) {
			err = nil // Start reports it
		}
		w.report(err)
		if err != nil && err.Error() != said {
			said = err.Error()
			w.log.Error(err, "waiting")
		}
		return err == nil, nil
	})
}

// missing returns an error that names what is not served, nil if nothing is
// missing.
func missing(d discovery.DiscoveryInterface) error {
	var absent []string
	kinds := required()
	// Sorted, so that one outage always gives the same message.
	for _, gv := range slices.Sorted(maps.Keys(kinds)) {
		list, err := d.ServerResourcesForGroupVersion(gv)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("the API server does not respond: %w", err)
		}
		for _, name := range kinds[gv] {
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

// NeedLeaderElection implements manager.LeaderElectionRunnable: each replica
// reports its own readiness.
func (crdWatch) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It makes a running agent not ready while a definition
// is missing, so that users see which one. Nothing else stops: informers list again and
// queues retry until the kind is served.
func (w crdWatch) Start(ctx context.Context) error {
	said := ""
	wait.UntilWithContext(ctx, func(context.Context) {
		err := missing(w.discovery)
		var absent *undefined
		switch {
		case err == nil && said != "":
			w.log.Info("all CustomResourceDefinitions are served again")
			said = ""
			w.report(nil)
		case errors.As(err, &absent) && err.Error() != said: // an error of another kind does not show that a definition is missing
			said = err.Error()
			w.log.Error(err, "not ready")
			w.report(err)
		}
	}, w.interval)
	return nil
}
