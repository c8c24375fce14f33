// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/comity-mcs/comity/sync/model"
)

// Options is what an administrator may set. Its zero value is not usable:
// start from DefaultOptions.
type Options struct {
	// Kubeconfig is a file; empty means the Pod's own service account.
	Kubeconfig string
	// Namespace is Comity's own, where the peers' Secrets are.
	Namespace string
	// ClusterID and ClusterSet name this member. Where the ClusterProperty CRD
	// (about.k8s.io, KEP-2149) exists they may be left empty, and must agree
	// with it when they are not.
	ClusterID, ClusterSet string
	// IdentityLabels are the namespace labels that peers may know and that
	// namespace sameness compares.
	IdentityLabels []string
	// Workers is how many Services are synced at once.
	Workers int

	// WebhookAddress is host:port; an empty host means every interface.
	WebhookAddress string
	// CertDir holds tls.crt and tls.key of the webhook. They are read again
	// when they change.
	CertDir string
	// HealthAddress serves /healthz and /readyz, MetricsAddress /metrics; "0"
	// turns metrics off.
	HealthAddress, MetricsAddress string

	// LeaderElect lets several replicas run; only one of them writes.
	LeaderElect bool
	// ShutdownTimeout is how long work under way may take to end.
	ShutdownTimeout time.Duration
	// Verbosity of the log: 0 tells what changed, 1 also what was looked at.
	Verbosity int
}

// DefaultOptions are those of the Deployment.
func DefaultOptions() Options {
	return Options{
		Namespace:       namespaceFromPod(),
		ClusterID:       os.Getenv("COMITY_CLUSTER_ID"),
		ClusterSet:      os.Getenv("COMITY_CLUSTERSET"),
		IdentityLabels:  []string{model.LabelIdentity},
		Workers:         8,
		WebhookAddress:  ":9443",
		CertDir:         "/etc/comity/certs",
		HealthAddress:   ":8081",
		MetricsAddress:  ":8080",
		LeaderElect:     true,
		ShutdownTimeout: 20 * time.Second,
	}
}

// AddFlags makes every option a flag; the defaults are what o holds.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file; empty: the Pod's service account")
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "Comity's own namespace, where the peers' Secrets are")
	fs.StringVar(&o.ClusterID, "cluster-id", o.ClusterID, "id of this cluster, one RFC 1123 label (env COMITY_CLUSTER_ID); empty: from ClusterProperty")
	fs.StringVar(&o.ClusterSet, "clusterset", o.ClusterSet, "clusterset that this cluster belongs to (env COMITY_CLUSTERSET); empty: from ClusterProperty")
	fs.StringSliceVar(&o.IdentityLabels, "namespace-identity-labels", o.IdentityLabels, "namespace labels that peers may know and namespace sameness compares")
	fs.IntVar(&o.Workers, "workers", o.Workers, "how many Services are synced at once")
	fs.StringVar(&o.WebhookAddress, "webhook-bind-address", o.WebhookAddress, "host:port of the webhook")
	fs.StringVar(&o.CertDir, "cert-dir", o.CertDir, "directory with tls.crt and tls.key of the webhook")
	fs.StringVar(&o.HealthAddress, "health-probe-bind-address", o.HealthAddress, "host:port of /healthz and /readyz")
	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress, "host:port of /metrics; 0 turns it off")
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "elect the one replica that writes")
	fs.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", o.ShutdownTimeout, "how long work under way may take to end")
	fs.IntVarP(&o.Verbosity, "verbosity", "v", o.Verbosity, "0: what changed; 1: also what was looked at")
}

// Validate names the first flag that cannot work, with what was expected.
func (o *Options) Validate() error {
	if o.ClusterID != "" {
		if _, err := model.ParseClusterID(o.ClusterID); err != nil {
			return fmt.Errorf("--cluster-id: %w; choose another id, it also becomes part of DNS names", err)
		}
	}
	if o.ClusterSet != "" {
		if err := validateClusterSet(o.ClusterSet); err != nil {
			return fmt.Errorf("--clusterset: %w", err)
		}
	}
	if p := validation.IsDNS1123Label(o.Namespace); len(p) > 0 {
		return fmt.Errorf("--namespace: %q is no namespace: %s", o.Namespace, strings.Join(p, "; "))
	}
	for _, key := range o.IdentityLabels {
		if p := validation.IsQualifiedName(key); len(p) > 0 {
			return fmt.Errorf("--namespace-identity-labels: %q is no label key: %s", key, strings.Join(p, "; "))
		}
	}
	if o.Workers < 1 {
		return fmt.Errorf("--workers: %d given, expected at least 1", o.Workers)
	}
	if _, _, err := splitAddress(o.WebhookAddress); err != nil {
		return fmt.Errorf("--webhook-bind-address: %w", err)
	}
	if _, _, err := splitAddress(o.HealthAddress); err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	if o.MetricsAddress != "0" {
		if _, _, err := splitAddress(o.MetricsAddress); err != nil {
			return fmt.Errorf("--metrics-bind-address: %w", err)
		}
	}
	return nil
}

// validateClusterSet demands what a DNS subdomain and the label that peer
// Secrets carry both allow: with another name no peer could be joined.
func validateClusterSet(name string) error {
	if p := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...); len(p) > 0 {
		return fmt.Errorf("%q is not one DNS subdomain of at most 63 characters: %s", name, strings.Join(p, "; "))
	}
	return nil
}

// splitAddress takes host:port apart; an empty host is every interface.
func splitAddress(address string) (string, int, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q given, expected host:port such as \":9443\": %w", address, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q given, expected a port from 0 to 65535", address)
	}
	return host, int(number), nil
}

// namespaceFromPod is the namespace of the Pod that this runs in, comity-system
// elsewhere.
func namespaceFromPod() string {
	if ns := os.Getenv("POD_NAMESPACE"); ns != "" {
		return ns
	}
	return "comity-system"
}
