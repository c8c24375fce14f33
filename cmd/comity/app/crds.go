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
	"k8s.io/client-go/discovery"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// crdInterval is how often missing definitions are looked for. The API server
// serves a new one within a second; two bound the load of a long wait.
const crdInterval = 2 * time.Second

// crdWatchInterval is how often a running agent looks whether all is still served.
const crdWatchInterval = 5 * time.Second

// required is what must be served before a controller can start. The status
// subresources tell an old definition from a current one.
func required() map[string][]string {
	return map[string][]string{
		mcsv1beta1.GroupVersion.String():       {"serviceexports", "serviceexports/status", "serviceimports", "serviceimports/status"},
		policyv1alpha1.GroupVersion.String():   {"exportpolicies", "exportpolicies/status"},
		exchangev1alpha1.GroupVersion.String(): {"exportrecords", "importrecords", "namespacerecords", "memberrecords"},
	}
}

// crdWait waits until all required kinds are served, and says what it waits for.
type crdWait struct {
	discovery discovery.DiscoveryInterface
	log       logr.Logger
	// report is told why it still waits, and nil once it does not.
	report func(error)
}

func (w crdWait) wait(ctx context.Context) error {
	ticker := time.NewTicker(crdInterval)
	defer ticker.Stop()
	said := ""
	for {
		err := missing(w.discovery)
		w.report(err)
		if err == nil {
			return nil
		}
		if err.Error() != said {
			said = err.Error()
			w.log.Info("waiting", "reason", said)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// missing names what is not served, nil when nothing is missing.
func missing(d discovery.DiscoveryInterface) error {
	var absent []string
	kinds := required()
	// In order, lest one outage be told in the words of one kind and then another.
	for _, gv := range slices.Sorted(maps.Keys(kinds)) {
		list, err := d.ServerResourcesForGroupVersion(gv)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("the API server does not answer: %w", err)
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

// undefined is the error of an API server that answers and lacks definitions.
type undefined struct{ names []string }

// Error names what is not served, and what to do.
func (u *undefined) Error() string {
	return fmt.Sprintf("CustomResourceDefinitions are missing or older than mcs-api v0.5.2: %s: install those of the MCS API"+
		" (sigs.k8s.io/mcs-api/config/crd) and Comity's own (config/crd), as the chart does (`comity install crds`);"+
		" Comity goes on by itself once they are served", strings.Join(u.names, ", "))
}

// crdWatch makes an agent that runs not ready while a definition is missing, so
// that whoever deleted one sees which. Everything else goes on: informers list
// again and queues retry until the kind is served.
type crdWatch struct {
	discovery discovery.DiscoveryInterface
	log       logr.Logger
	// report is given what is missing, and nil once nothing is.
	report func(error)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: each replica is
// ready or not for itself.
func (crdWatch) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (w crdWatch) Start(ctx context.Context) error {
	ticker := time.NewTicker(crdWatchInterval)
	defer ticker.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := missing(w.discovery)
		var absent *undefined
		switch {
		case err == nil && said != "":
			w.log.Info("all CustomResourceDefinitions are served again")
			said = ""
			w.report(nil)
		case errors.As(err, &absent) && err.Error() != said: // an API server that does not answer says nothing of definitions
			said = err.Error()
			w.log.Info("not ready", "reason", said)
			w.report(err)
		}
	}
}
