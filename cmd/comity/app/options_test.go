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
		{"metrics can be turned off", func(o *Options) { o.MetricsAddress = "0" }, nil},
		{"an IPv6 address is an address", func(o *Options) { o.HealthAddress = "[::1]:8081" }, nil},
		{"capitals in the id", func(o *Options) { o.ClusterID = "Cluster" }, []string{"--cluster-id", `"Cluster"`, "RFC 1123 label", "choose another id"}},
		{"a dot in the id", func(o *Options) { o.ClusterID = "a.b" }, []string{"--cluster-id", `"a.b"`, "RFC 1123 label"}},
		{"an id of 64 characters", func(o *Options) { o.ClusterID = strings.Repeat("a", 64) }, []string{"--cluster-id", "at most 63"}},
		{"a clusterset with a space", func(o *Options) { o.ClusterSet = "my set" }, []string{"--clusterset", `"my set"`, "DNS subdomain"}},
		{"a clusterset that no Secret could carry as a label", func(o *Options) { o.ClusterSet = strings.Repeat("a", 64) }, []string{"--clusterset", "at most 63"}},
		{"a namespace with a slash", func(o *Options) { o.Namespace = "a/b" }, []string{"--namespace", `"a/b"`}},
		{"no namespace", func(o *Options) { o.Namespace = "" }, []string{"--namespace", `""`}},
		{"a label key with a space", func(o *Options) { o.IdentityLabels = []string{"ok", "not ok"} }, []string{"--namespace-identity-labels", `"not ok"`}},
		{"no workers", func(o *Options) { o.Workers = 0 }, []string{"--workers", "0 given", "at least 1"}},
		{"a webhook address without a port", func(o *Options) { o.WebhookAddress = "localhost" }, []string{"--webhook-bind-address", `"localhost"`, "host:port"}},
		{"a health port out of range", func(o *Options) { o.HealthAddress = ":70000" }, []string{"--health-probe-bind-address", `":70000"`, "0 to 65535"}},
		{"a metrics port that is a name", func(o *Options) { o.MetricsAddress = ":http" }, []string{"--metrics-bind-address", `":http"`, "0 to 65535"}},
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

func TestMainEndsWithTwoForFlagsThatCannotWork(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want int
	}{
		{"an id that is no label", []string{"--cluster-id=A"}, 2},
		{"an unknown flag", []string{"--no-such-flag"}, 2},
		{"a word that is no flag", []string{"run"}, 2},
		{"help", []string{"--help"}, 0},
		{"version", []string{"--version"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Main(tc.args); got != tc.want {
				t.Errorf("got exit code %d, want %d", got, tc.want)
			}
		})
	}
}
