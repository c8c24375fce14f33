// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/comity-mcs/comity/sync/model"
)

// Options are the settings of the agent. The zero value is not valid: start
// from DefaultOptions.
type Options struct {
	// stopping is closed when the agent was asked to stop. Run sets it.
	stopping <-chan struct{}
	// Kubeconfig is a file; empty means the service account of the Pod.
	Kubeconfig string
	// Namespace is the namespace of Comity and of the Secrets of Peers.
	Namespace string
	// ClusterID and ClusterSet identify this member. They may be empty if the
	// ClusterProperty objects (about.k8s.io, KEP-2149) exist, and must not
	// differ from them.
	ClusterID, ClusterSet string
	// ClusterLabels are those of this cluster for tiers, as those of a Peer are for another one.
	ClusterLabels map[string]string
	// ExchangeKubeconfig is the kubeconfig file of the hub; empty means that
	// each member publishes in its own API server.
	ExchangeKubeconfig string
	// IdentityLabels are the namespace labels that are published to peers, for
	// the policy of namespace sameness.
	IdentityLabels []string
	// RequiredPolicies are the names of ExportPolicies without which no export is
	// evaluated.
	RequiredPolicies []string
	// PublishNamespaces is a label selector of the namespaces whose names and
	// identity labels are published; empty means all. An export from another namespace carries its identity
	// labels all the same.
	PublishNamespaces string
	// PodCIDRs and ServiceCIDRs are the address ranges of this cluster; empty
	// means those of its Nodes and ServiceCIDRs.
	PodCIDRs, ServiceCIDRs []string
	// Workers is the number of Services that are synced concurrently.
	Workers int

	// Import is false if another implementation imports. Then Comity publishes
	// exports, evaluates policies and writes status, and creates no object in
	// users' namespaces.
	Import bool
	// Selectors is maintain if derived Services keep the selector of the
	// exported Service, so that matching local pods become endpoints, or drop.
	Selectors string
	// Takeover is the pipeline whose objects are adopted: sveltos or none.
	Takeover string

	// HeartbeatInterval is how often this member renews its Lease. LostAfter is how long
	// after the last renewal the endpoints of a peer are probed, to find whether it is Lost.
	HeartbeatInterval, LostAfter time.Duration

	// WebhookAddress is host:port; an empty host means every interface.
	WebhookAddress string
	// CertDir has tls.crt and tls.key of the webhook. They are loaded again
	// when they change.
	CertDir string
	// WebhookClientCAFile is a PEM bundle: clients of the webhook need a certificate
	// that one of its CAs verifies. Empty: any client that reaches the port.
	WebhookClientCAFile string
	// WebhookClientNames are the names of which that certificate needs one; none: any.
	WebhookClientNames []string
	// HealthAddress serves /healthz and /readyz. MetricsAddress serves /metrics;
	// "0" disables metrics.
	HealthAddress, MetricsAddress string
	// MetricsSecure serves metrics by TLS, to accounts that may get /metrics.
	MetricsSecure bool

	// LeaderElect allows several replicas, of which only the leader writes.
	LeaderElect bool
	// ShutdownDelay is how long the agent works on after it was asked to stop, while API
	// servers remove it as an endpoint.
	ShutdownDelay time.Duration
	// ShutdownTimeout is how long current work may take when the agent stops.
	ShutdownTimeout time.Duration
	// Verbosity of the log: 0 logs changes, 1 also details such as retries.
	Verbosity int
	// LogFormat is that of all lines of the log: json or text.
	LogFormat string
	// Timing has no flags.
	Timing Timing

	// What Validate reads from the flags: the selector of PublishNamespaces, PodCIDRs and
	// ServiceCIDRs, and WebhookAddress.
	publishNamespaces labels.Selector
	pods, services    []netip.Prefix
	webhookHost       string
	webhookPort       int
}

// The values of --selectors, --takeover and --log-format.
const (
	selectorsMaintain = "maintain"
	selectorsDrop     = "drop"
	takeoverSveltos   = "sveltos"
	takeoverNone      = "none"
	logJSON           = "json"
	logText           = "text"
)

// DefaultOptions are the options of the Deployment.
func DefaultOptions() Options {
	o := Options{Timing: Timing{
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		PeersRead: 30 * time.Second, Definitions: 2 * time.Second, AgentInfo: 10 * time.Second,
		Status: 5 * time.Second, Probe: 2 * time.Second, Retry: 10 * time.Second, Hub: 5 * time.Second,
	}}
	o.AddFlags(pflag.NewFlagSet("", pflag.ContinueOnError))
	return o
}

// AddFlags adds a flag for every option, and sets the options to the defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the service account of the Pod")
	fs.StringVar(&o.Namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "comity-system"), "namespace of Comity and of the Secrets of Peers")
	fs.StringVar(&o.ClusterID, "cluster-id", os.Getenv("COMITY_CLUSTER_ID"), "id of this cluster, one RFC 1123 label (env COMITY_CLUSTER_ID); empty: read from ClusterProperty")
	fs.StringVar(&o.ClusterSet, "clusterset", os.Getenv("COMITY_CLUSTERSET"), "name of the clusterset (env COMITY_CLUSTERSET); empty: read from ClusterProperty")
	fs.StringToStringVar(&o.ClusterLabels, "cluster-labels", nil, "labels of this cluster, key=value,..., which annotation comity.dev/tiers compares with those of Peers")
	fs.StringVar(&o.ExchangeKubeconfig, "exchange-kubeconfig", os.Getenv("COMITY_EXCHANGE_KUBECONFIG"), "kubeconfig file of the hub in which all members publish (env COMITY_EXCHANGE_KUBECONFIG)")
	fs.StringSliceVar(&o.IdentityLabels, "namespace-identity-labels", []string{model.LabelIdentity}, "namespace labels that are published to peers; only exports of namespaces with the same values are imported")
	fs.StringSliceVar(&o.RequiredPolicies, "require-policies", nil, "ExportPolicies that must exist; while one is missing, nothing new is published or imported")
	fs.StringVar(&o.PublishNamespaces, "publish-namespaces", "", "label selector of the namespaces whose names and identity labels are published to peers; empty: all")
	fs.StringSliceVar(&o.PodCIDRs, "pod-cidrs", nil, "pod address ranges of this cluster; empty: those of its Nodes")
	fs.StringSliceVar(&o.ServiceCIDRs, "service-cidrs", nil, "Service address ranges of this cluster, the range of the default IP family first; empty: those of its ServiceCIDRs")
	fs.BoolVar(&o.Import, "import", true, "import what peers export; false: another implementation does")
	fs.StringVar(&o.Selectors, "selectors", selectorsDrop, "maintain: derived Services keep the selector of the exported Service; drop: they have none")
	fs.StringVar(&o.Takeover, "takeover", takeoverNone, "sveltos: adopt the objects that the Sveltos pipeline created; none: do not change them")
	fs.DurationVar(&o.HeartbeatInterval, "heartbeat-interval", 5*time.Second, "how often this member renews its Lease; the same in every member")
	fs.DurationVar(&o.LostAfter, "lost-after", 15*time.Second, "how long after the last renewal of its Lease the endpoints of a peer are probed; it is Lost if none answers, or after three times as long")
	fs.IntVar(&o.Workers, "workers", 8, "number of Services that are synced concurrently")
	fs.StringVar(&o.WebhookAddress, "webhook-bind-address", ":9443", "host:port of the webhook")
	fs.StringVar(&o.CertDir, "cert-dir", "/etc/comity/certs", "directory with tls.crt and tls.key of the webhook")
	fs.StringVar(&o.WebhookClientCAFile, "webhook-client-ca-file", "", "PEM bundle; the webhook accepts only clients with a certificate from one of these CAs; empty: any client")
	fs.StringSliceVar(&o.WebhookClientNames, "webhook-client-names", nil, "common names or DNS names, one of which the client certificate must have; empty: any")
	fs.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "host:port of /healthz and /readyz")
	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8080", "host:port of /metrics; 0 disables it")
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", true, "serve metrics over TLS to accounts that may get /metrics; false: over plain HTTP to every client")
	fs.BoolVar(&o.LeaderElect, "leader-elect", true, "elect a leader, the replica that writes; the kubectl plugin needs it")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay", 5*time.Second, "how long to work on after SIGTERM, until no API server sends requests any more; add it to the Pod's grace period")
	fs.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", 20*time.Second, "how long current work may take when the agent stops")
	fs.StringVar(&o.LogFormat, "log-format", logJSON, "format of the log: json or text")
	fs.IntVarP(&o.Verbosity, "verbosity", "v", 0, "0 logs changes; 1 also logs details such as retries")
}

// minHeartbeats is how many renewals a peer must miss before it may be Lost. With
// fewer, a single lost request would have its endpoints probed.
const minHeartbeats = 2

// Validate returns an error that names the first invalid flag and what was
// expected. Run needs what it reads from them.
func (o *Options) Validate() error {
	var errSelector, errPods, errServices, errWebhook error
	o.publishNamespaces, errSelector = labels.Parse(o.PublishNamespaces)
	o.pods, errPods = model.ParsePrefixes(o.PodCIDRs)
	o.services, errServices = model.ParsePrefixes(o.ServiceCIDRs)
	o.webhookHost, o.webhookPort, errWebhook = splitAddress(o.WebhookAddress)
	for _, checked := range []struct {
		flag  string
		fault error
	}{
		{"--cluster-id", validateClusterID(o.ClusterID)},
		{"--clusterset", validateClusterSet(o.ClusterSet)},
		{"--namespace", validateNames("a namespace name", validation.IsDNS1123Label, o.Namespace)},
		{"--namespace-identity-labels", validateNames("a label key", validation.IsQualifiedName, o.IdentityLabels...)},
		{"--require-policies", validateNames("the name of an ExportPolicy", validation.IsDNS1123Subdomain, o.RequiredPolicies...)},
		{"--cluster-labels", validateLabels(o.ClusterLabels)},
		{"--publish-namespaces", expect(errSelector == nil, "%q is not a label selector such as \"clusterset=shared,team!=test\": %w", o.PublishNamespaces, errSelector)},
		{"--pod-cidrs", errPods},
		{"--service-cidrs", errServices},
		{"--selectors", validateMode(o.Selectors, selectorsMaintain, selectorsDrop)},
		{"--takeover", validateMode(o.Takeover, takeoverSveltos, takeoverNone)},
		{"--log-format", validateMode(o.LogFormat, logJSON, logText)},
		{"--workers", expect(o.Workers >= 1, "%d given, expected at least 1", o.Workers)},
		{"--takeover", expect(o.Takeover == takeoverNone || o.Import, "%s given with --import=false; expected %s, or --import", o.Takeover, takeoverNone)},
		{"--heartbeat-interval", expect(o.HeartbeatInterval >= time.Second, "%s given, expected at least 1s", o.HeartbeatInterval)},
		{"--lost-after", expect(o.LostAfter >= minHeartbeats*o.HeartbeatInterval, "%s given, expected at least %d times --heartbeat-interval (%s), which all members should share",
			o.LostAfter, minHeartbeats, o.HeartbeatInterval)},
		{"--webhook-client-names", expect(len(o.WebhookClientNames) == 0 || o.WebhookClientCAFile != "", "given without --webhook-client-ca-file; expected both")},
		{"--webhook-bind-address", errWebhook},
	} {
		if checked.fault != nil {
			return fmt.Errorf("%s: %w", checked.flag, checked.fault)
		}
	}
	return nil
}

func expect(isValid bool, format string, args ...any) error {
	if isValid {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func validateNames(kind string, problems func(string) []string, names ...string) error {
	for _, name := range names {
		if p := problems(name); len(p) > 0 {
			return fmt.Errorf("%q is not %s: %s", name, kind, strings.Join(p, "; "))
		}
	}
	return nil
}

func validateLabels(all map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if p := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(all[key])...); len(p) > 0 {
			return fmt.Errorf("%q is not a label such as region=eu: %s", key+"="+all[key], strings.Join(p, "; "))
		}
	}
	return nil
}

func validateMode(given string, modes ...string) error {
	return expect(slices.Contains(modes, given), "%q given, expected %s", given, strings.Join(modes, " or "))
}

// validateClusterID checks an id, unless it is read elsewhere.
func validateClusterID(id string) error {
	_, err := model.ParseClusterID(id)
	return expect(id == "" || err == nil, "%w; choose another id; it is also part of DNS names", err)
}

// validateClusterSet checks that name is valid as a DNS subdomain and as the
// value of a label of Peers, because peers could not be joined otherwise; unless it is read elsewhere.
func validateClusterSet(name string) error {
	p := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...)
	return expect(name == "" || len(p) == 0, "%q is not a DNS subdomain of at most 63 characters: %s", name, strings.Join(p, "; "))
}

// splitAddress splits host:port; an empty host means all interfaces.
func splitAddress(address string) (string, int, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q given, expected host:port such as \":9443\": %w", address, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	return host, int(number), expect(err == nil, "%q given, expected a port from 0 to 65535", address)
}

// Timing is how long the agent waits, and how often it checks what no event notifies it
// of. It has no flags, because no cluster needs other values. Tests shorten it.
type Timing struct {
	// A leader renews its Lease every RetryPeriod, and stops writing if it could not
	// renew it for RenewDeadline. Another replica leads after LeaseDuration at the
	// earliest, so two replicas never write at the same time.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// PeersRead is how long readiness waits for the peers: one that cannot be reached
	// must not keep this cluster from evaluating exports.
	PeersRead time.Duration
	// Definitions is how often the agent checks that all definitions are served. The API
	// server serves a new one within a second; two seconds bound the load.
	Definitions time.Duration
	// AgentInfo is how often the leader reads its Lease. It is patched only if an
	// annotation is missing or differs, for example after the Lease was deleted and
	// leader election created it again.
	AgentInfo time.Duration
	// Status is the least time between two writes of one status.
	Status time.Duration
	// Probe is how often the endpoints of clusters without a heartbeat are probed; those
	// of a single import, a fifth as often.
	Probe time.Duration
	// Retry is how soon is tried again what nothing announces: members that do not
	// answer at start, exchange namespaces that are missing, and corrections that
	// something else undoes.
	Retry time.Duration
	// Hub is how often the kubeconfig file and the namespaces of a hub are read.
	Hub time.Duration
}
