// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
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
	// ExchangeKubeconfig is a file with access to the hub, where all members
	// publish in one; empty means that each publishes in its own API server.
	ExchangeKubeconfig string
	// IdentityLabels are the namespace labels that peers may know and that
	// namespace sameness compares.
	IdentityLabels []string
	// PodCIDRs and ServiceCIDRs are this cluster's address ranges, where they
	// cannot be read from its Nodes and ServiceCIDRs.
	PodCIDRs, ServiceCIDRs []string
	// Workers is how many Services are synced at once.
	Workers int

	// Import is false where another implementation imports: then exports are
	// published, judged and reported on, and nothing is written to a user's
	// namespace.
	Import bool
	// Selectors says whether derived Services keep the exported one's selector,
	// so that local pods join by themselves: maintain or drop.
	Selectors string
	// Takeover names the pipeline whose objects are adopted in place: sveltos or none.
	Takeover string

	// HeartbeatInterval is how often this member is heard of; StaleAfter and
	// LostAfter are how long a peer may be silent until it is Stale, then Lost.
	HeartbeatInterval, StaleAfter, LostAfter time.Duration
	// DeletionHold is how long exports of a peer are kept that vanished together
	// with so many others that it looks like an accident.
	DeletionHold time.Duration

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

// The values of --selectors and --takeover.
const (
	selectorsMaintain = "maintain"
	selectorsDrop     = "drop"
	takeoverSveltos   = "sveltos"
	takeoverNone      = "none"
)

// DefaultOptions are those of the Deployment.
func DefaultOptions() Options {
	return Options{
		Namespace:  namespaceFromPod(),
		ClusterID:  os.Getenv("COMITY_CLUSTER_ID"),
		ClusterSet: os.Getenv("COMITY_CLUSTERSET"),

		ExchangeKubeconfig: os.Getenv("COMITY_EXCHANGE_KUBECONFIG"),

		IdentityLabels:    []string{model.LabelIdentity},
		Workers:           8,
		Import:            true,
		Selectors:         selectorsDrop,
		Takeover:          takeoverNone,
		HeartbeatInterval: 10 * time.Second,
		StaleAfter:        40 * time.Second,
		LostAfter:         5 * time.Minute,
		DeletionHold:      10 * time.Minute,
		WebhookAddress:    ":9443",
		CertDir:           "/etc/comity/certs",
		HealthAddress:     ":8081",
		MetricsAddress:    ":8080",
		LeaderElect:       true,
		ShutdownTimeout:   20 * time.Second,
	}
}

// AddFlags makes every option a flag; the defaults are what o holds.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig file; empty: the Pod's service account")
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "Comity's own namespace, where the peers' Secrets are")
	fs.StringVar(&o.ClusterID, "cluster-id", o.ClusterID, "id of this cluster, one RFC 1123 label (env COMITY_CLUSTER_ID); empty: from ClusterProperty")
	fs.StringVar(&o.ClusterSet, "clusterset", o.ClusterSet, "clusterset that this cluster belongs to (env COMITY_CLUSTERSET); empty: from ClusterProperty")
	fs.StringVar(&o.ExchangeKubeconfig, "exchange-kubeconfig", o.ExchangeKubeconfig, "kubeconfig file of the hub in which all members publish (env COMITY_EXCHANGE_KUBECONFIG); empty: each in its own API server")
	fs.StringSliceVar(&o.IdentityLabels, "namespace-identity-labels", o.IdentityLabels, "namespace labels that peers may know and namespace sameness compares")
	fs.StringSliceVar(&o.PodCIDRs, "pod-cidrs", o.PodCIDRs, "this cluster's pod address ranges; empty: those of its Nodes")
	fs.StringSliceVar(&o.ServiceCIDRs, "service-cidrs", o.ServiceCIDRs, "this cluster's Service address ranges, that of the default IP family first; empty: those of its ServiceCIDRs")
	fs.BoolVar(&o.Import, "import", o.Import, "import what peers export; false leaves that to another implementation, and writes nothing to users' namespaces")
	fs.StringVar(&o.Selectors, "selectors", o.Selectors, "maintain: derived Services keep the selector of the exported one, so that local pods join by themselves; drop: they have none")
	fs.StringVar(&o.Takeover, "takeover", o.Takeover, "sveltos: adopt what the Sveltos pipeline made, in place; none: leave it alone")
	fs.DurationVar(&o.HeartbeatInterval, "heartbeat-interval", o.HeartbeatInterval, "how often peers hear of this cluster")
	fs.DurationVar(&o.StaleAfter, "stale-after", o.StaleAfter, "how long a peer may be silent until it is called Stale")
	fs.DurationVar(&o.LostAfter, "lost-after", o.LostAfter, "how long a peer may be silent until it is Lost and its endpoints are probed")
	fs.DurationVar(&o.DeletionHold, "deletion-hold", o.DeletionHold, "how long exports of a peer are kept that vanished with so many others that it looks like an accident")
	fs.IntVar(&o.Workers, "workers", o.Workers, "how many Services are synced at once")
	fs.StringVar(&o.WebhookAddress, "webhook-bind-address", o.WebhookAddress, "host:port of the webhook")
	fs.StringVar(&o.CertDir, "cert-dir", o.CertDir, "directory with tls.crt and tls.key of the webhook")
	fs.StringVar(&o.HealthAddress, "health-probe-bind-address", o.HealthAddress, "host:port of /healthz and /readyz")
	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress, "host:port of /metrics; 0 turns it off")
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "elect the one replica that writes; without it the kubectl plugin does not find the agent")
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
	if err := cmp.Or(o.validateModes(), o.validateTimes()); err != nil {
		return err
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

// validateModes checks the flags that say what this cluster takes part in.
func (o *Options) validateModes() error {
	for _, given := range []struct {
		flag  string
		cidrs []string
	}{{"--pod-cidrs", o.PodCIDRs}, {"--service-cidrs", o.ServiceCIDRs}} {
		if _, err := prefixes(given.cidrs); err != nil {
			return fmt.Errorf("%s: %w", given.flag, err)
		}
	}
	switch {
	case o.Selectors != selectorsMaintain && o.Selectors != selectorsDrop:
		return fmt.Errorf("--selectors: %q given, expected %s or %s", o.Selectors, selectorsMaintain, selectorsDrop)
	case o.Takeover != takeoverSveltos && o.Takeover != takeoverNone:
		return fmt.Errorf("--takeover: %q given, expected %s or %s", o.Takeover, takeoverSveltos, takeoverNone)
	case o.Takeover == takeoverSveltos && !o.Import:
		return fmt.Errorf("--takeover: %s given with --import=false, which leaves the objects to whoever made them; expected %s, or --import", takeoverSveltos, takeoverNone)
	}
	return nil
}

// minHeartbeats is how many heartbeats must be missed before a peer is stale;
// with fewer, one lost request would make it so.
const minHeartbeats = 2

// validateTimes checks the flags that say when a peer is given up.
func (o *Options) validateTimes() error {
	switch {
	case o.HeartbeatInterval < time.Second:
		return fmt.Errorf("--heartbeat-interval: %s given, expected at least 1s", o.HeartbeatInterval)
	case o.StaleAfter < minHeartbeats*o.HeartbeatInterval:
		return fmt.Errorf("--stale-after: %s given, expected at least %d times --heartbeat-interval (%s), which all members should share",
			o.StaleAfter, minHeartbeats, o.HeartbeatInterval)
	case o.LostAfter <= o.StaleAfter:
		return fmt.Errorf("--lost-after: %s given, expected more than --stale-after (%s)", o.LostAfter, o.StaleAfter)
	case o.DeletionHold <= 0:
		return fmt.Errorf("--deletion-hold: %s given, expected more than 0", o.DeletionHold)
	}
	return nil
}

// prefixes reads address ranges such as 10.0.0.0/8.
func prefixes(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Errorf("%q is no address range; expected one such as \"10.244.0.0/16\", without bits beyond its length", text)
		}
		out = append(out, prefix)
	}
	return out, nil
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
