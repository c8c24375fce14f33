// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/notify"
)

// objectMetrics counts, when it is read, what the status of objects says, and what the
// controllers found of imports: so a count cannot differ from what kubectl shows. Only the
// leader serves that, so that a sum over all replicas counts each object once. No label names
// an object of a user.
type objectMetrics struct {
	reader      client.Reader // a cache
	elected     <-chan struct{}
	imports     func(gauge) // counts what the controllers found of imports
	certificate string      // the file with that of the webhook
	log         logr.Logger
}

// gauge makes one that is served, too.
type gauge = func(name, help string, labels ...string) *prometheus.GaugeVec

// collectTimeout bounds one read of the cache, which waits while it is being filled.
const collectTimeout = 5 * time.Second

// Describe implements prometheus.Collector. Without descriptions, what is collected is not
// checked.
func (objectMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m objectMetrics) Collect(out chan<- prometheus.Metric) {
	var all []*prometheus.GaugeVec
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		all = append(all, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
		return all[len(all)-1]
	}
	gauge("comity_build_info", "1, with the version of Comity and of Go.", "version", "goversion").WithLabelValues(version, runtime.Version()).Set(1)
	leads := gauge("comity_leader", "1 if this replica leads: it alone writes, and serves what is counted from objects.").WithLabelValues()
	expiry := gauge("comity_webhook_certificate_expiration_timestamp_seconds", "When the certificate of the webhook expires.")
	if chain, err := cert.CertsFromFile(m.certificate); err == nil {
		expiry.WithLabelValues().Set(float64(chain[0].NotAfter.Unix()))
	}
	select {
	case <-m.elected:
		leads.Set(1)
		m.imports(gauge)
		if err := m.count(gauge); err != nil {
			m.log.Error(err, "objects are not counted in the metrics")
		}
	default:
	}
	for _, vec := range all {
		vec.Collect(out)
	}
}

// count gives what the leader counts.
func (m objectMetrics) count(gauge gauge) error {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	each := func(list client.ObjectList, do func(client.Object)) error {
		return notify.EachListed(ctx, m.reader, list, do)
	}
	ofExports := gauge("comity_exports", "ServiceExports by condition. One with several conflicts counts once for each.", "condition", "status", "reason")
	ofImports := gauge("comity_imports", "ServiceImports by condition.", "condition", "status", "reason")
	conditions := func(to *prometheus.GaugeVec, kind string, all []metav1.Condition) {
		for _, c := range all {
			for _, reason := range condition.Reasons(kind, c) {
				to.WithLabelValues(c.Type, string(c.Status), reason).Inc()
			}
		}
	}
	ofPolicies := gauge("comity_policy_condition", "1 for each condition of an ExportPolicy.", "policy", "condition", "status", "reason")
	violations := gauge("comity_policy_violations", "Exports, or imports, that violate the policy.", "policy")
	token := gauge("comity_peer_token_expiration_timestamp_seconds", "When the token expires by which the peer is read.", "peer")
	records := gauge("comity_peer_exports", "Exports of the peer to this cluster: Read, or Refused (not valid, or not accepted here).", "peer", "state")
	return errors.Join(
		each(&mcsv1beta1.ServiceExportList{}, func(o client.Object) {
			conditions(ofExports, mcsv1beta1.ServiceExportKindName, o.(*mcsv1beta1.ServiceExport).Status.Conditions)
		}),
		each(&mcsv1beta1.ServiceImportList{}, func(o client.Object) {
			conditions(ofImports, mcsv1beta1.ServiceImportKindName, o.(*mcsv1beta1.ServiceImport).Status.Conditions)
		}),
		each(&policyv1alpha1.ExportPolicyList{}, func(o client.Object) {
			p := o.(*policyv1alpha1.ExportPolicy)
			for _, c := range p.Status.Conditions {
				ofPolicies.WithLabelValues(p.Name, c.Type, string(c.Status), c.Reason).Set(1)
			}
			if p.Status.Violations != nil {
				violations.WithLabelValues(p.Name).Set(float64(p.Status.Violations.Total))
			}
		}),
		each(&exchangev1alpha1.PeerList{}, func(o client.Object) {
			p := o.(*exchangev1alpha1.Peer)
			if at := p.Status.TokenExpires; at != nil {
				token.WithLabelValues(p.Name).Set(float64(at.Unix()))
			}
			records.WithLabelValues(p.Name, "Read").Set(float64(p.Status.Exports.Read))
			records.WithLabelValues(p.Name, "Refused").Set(float64(p.Status.Exports.Refused))
		}))
}
