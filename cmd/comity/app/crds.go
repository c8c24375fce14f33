// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
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
	return fmt.Errorf("CustomResourceDefinitions are missing or older than mcs-api v0.5.2: %s: install those of the MCS API"+
		" (sigs.k8s.io/mcs-api/config/crd) and Comity's own (config/crd); Comity goes on by itself once they are served",
		strings.Join(absent, ", "))
}
