// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestValidateNamesTheFlagAndWhatWasExpected(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   []string // none: valid
	}{
		{"defaults with an identity are valid", func(*Options) {}, nil},
		{"both names may be left to ClusterProperty", func(o *Options) { o.ClusterID, o.ClusterSet = "", "" }, nil},
		{"an IPv6 address is an address", func(o *Options) { o.WebhookAddress = "[::1]:9443" }, nil},
		{"a webhook port out of range", func(o *Options) { o.WebhookAddress = ":70000" }, []string{"--webhook-bind-address", `":70000"`, "0 to 65535"}},
		{"capitals in the id", func(o *Options) { o.ClusterID = "Cluster" }, []string{"--cluster-id", `"Cluster"`, "RFC 1123 label", "choose another id"}},
		{"a dot in the id", func(o *Options) { o.ClusterID = "a.b" }, []string{"--cluster-id", `"a.b"`, "RFC 1123 label"}},
		{"an id of 64 characters", func(o *Options) { o.ClusterID = strings.Repeat("a", 64) }, []string{"--cluster-id", "at most 63"}},
		{"a clusterset with a space", func(o *Options) { o.ClusterSet = "my set" }, []string{"--clusterset", `"my set"`, "DNS subdomain"}},
		{"a clusterset that no Secret could carry as a label", func(o *Options) { o.ClusterSet = strings.Repeat("a", 64) }, []string{"--clusterset", "at most 63"}},
		{"a namespace with a slash", func(o *Options) { o.Namespace = "a/b" }, []string{"--namespace", `"a/b"`}},
		{"no namespace", func(o *Options) { o.Namespace = "" }, []string{"--namespace", `""`}},
		{"a selector that is none", func(o *Options) { o.PublishNamespaces = "a in b" }, []string{"--publish-namespaces", `"a in b"`}},
		{"a label key with a space", func(o *Options) { o.IdentityLabels = []string{"ok", "not ok"} }, []string{"--namespace-identity-labels", `"not ok"`}},
		{"a required policy with a space", func(o *Options) { o.RequiredPolicies = []string{"ok", "not ok"} }, []string{"--require-policies", `"not ok"`, "name of an ExportPolicy"}},
		{"required policies", func(o *Options) { o.RequiredPolicies = []string{"a", "b"} }, nil},
		{"no workers", func(o *Options) { o.Workers = 0 }, []string{"--workers", "0 given", "at least 1"}},
		{"add-on mode beside another implementation", func(o *Options) { o.Import = false }, nil},
		{"selectors that are neither kept nor dropped", func(o *Options) { o.Selectors = "keep" }, []string{"--selectors", `"keep"`, "maintain or drop"}},
		{"an unknown pipeline to take over from", func(o *Options) { o.Takeover = "argo" }, []string{"--takeover", `"argo"`, "sveltos or none"}},
		{"an unknown format of the log", func(o *Options) { o.LogFormat = "xml" }, []string{"--log-format", `"xml"`, "json or text"}},
		{"a takeover by a member that imports nothing", func(o *Options) { o.Import, o.Takeover = false, "sveltos" }, []string{"--takeover", "--import=false"}},
		{"ranges of both families", func(o *Options) {
			o.PodCIDRs, o.ServiceCIDRs = []string{"10.0.0.0/16", "fd00::/48"}, []string{"10.96.0.0/12"}
		}, nil},
		{"a label of the cluster that is none", func(o *Options) { o.ClusterLabels = map[string]string{"region": "e u"} }, []string{"--cluster-labels", `"region=e u"`, "region=eu"}},
		{"a range that is an address", func(o *Options) { o.PodCIDRs = []string{"10.0.0.0/16", "10.1.0.0"} }, []string{"--pod-cidrs", `"10.1.0.0"`, "address range"}},
		{"a range with bits beyond its length", func(o *Options) { o.ServiceCIDRs = []string{"10.96.0.1/12"} }, []string{"--service-cidrs", `"10.96.0.1/12"`}},
		{"a heartbeat that never rests", func(o *Options) { o.HeartbeatInterval = 0 }, []string{"--heartbeat-interval", "0s", "1s"}},
		{"one missed heartbeat that makes a peer lost", func(o *Options) { o.LostAfter = 9 * time.Second }, []string{"--lost-after", "9s", "2 times", "5s"}},
		{"a webhook address without a port", func(o *Options) { o.WebhookAddress = "localhost" }, []string{"--webhook-bind-address", `"localhost"`, "host:port"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := DefaultOptions()
			o.ClusterID, o.ClusterSet = "a", "production"
			tc.change(&o)
			err := o.Validate()
			if len(tc.want) == 0 {
				if err != nil {
					t.Errorf("got error %v, want none", err)
				}
				return
			}
			if err == nil {
				t.Fatal("got no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want it to say %q", err, part)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line", err)
			}
		})
	}
}

func TestFlagsSetEveryOptionAndDefaultToWhatIsThere(t *testing.T) {
	t.Setenv("COMITY_CLUSTER_ID", "from-env")
	t.Setenv("COMITY_CLUSTERSET", "set-from-env")
	t.Setenv("POD_NAMESPACE", "namespace-from-env")
	o := DefaultOptions()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse([]string{"--clusterset=flag", "--workers=3", "--leader-elect=false", "--shutdown-timeout=5s", "-v=1", "--namespace-identity-labels=a,b"}); err != nil {
		t.Fatal(err)
	}
	if o.ClusterID != "from-env" || o.Namespace != "namespace-from-env" {
		t.Errorf("got id %q and namespace %q, want those of the environment", o.ClusterID, o.Namespace)
	}
	if o.ClusterSet != "flag" || o.Workers != 3 || o.LeaderElect || o.ShutdownTimeout != 5*time.Second || o.Verbosity != 1 || len(o.IdentityLabels) != 2 {
		t.Errorf("got %+v, want what the flags say", o)
	}
}

func TestMainEndsWithOneAfterAnError(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want int
	}{
		{"an id that is no label", []string{"--cluster-id=A"}, 1},
		{"an unknown flag", []string{"--no-such-flag"}, 1},
		{"a word that is no flag", []string{"run"}, 1},
		{"help", []string{"--help"}, 0},
		{"version", []string{"--version"}, 0},
		{"an unknown flag of a subcommand", []string{"probe", "--no-such-flag"}, 1},
		{"a word after a subcommand that takes none", []string{"serve", "now"}, 1},
		{"a flag that a subcommand cannot use", []string{"serve", "--port=x"}, 1},
		{"nothing named to install", []string{"install"}, 1},
		{"something unknown to install", []string{"install", "chart"}, 1},
		{"no file to install from", []string{"install", "policies"}, 1},
		{"a file that is not there", []string{"install", "policies", "--file=no-such-file"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Main(DefaultOptions(), tc.args); got != tc.want {
				t.Errorf("got exit code %d, want %d", got, tc.want)
			}
		})
	}
}
