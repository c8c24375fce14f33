// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package corefile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/sync/join/corefile"
)

// kubeadm is what kubeadm 1.34 writes.
const kubeadm = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
`

const kubeadmEnabled = `.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {
       multicluster clusterset.local
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local clusterset.local
       disable denial cluster.local clusterset.local
    }
    loop
    reload
    loadbalance
}
`

func TestEnable(t *testing.T) {
	for _, test := range []struct{ name, before, after string }{
		{"the file of kubeadm", kubeadm, kubeadmEnabled},
		{"another domain, comments, tabs and no cache",
			"# ours\n.:53 { # all\n\tkubernetes k8s.example in-addr.arpa { # the cluster\n\t\tpods verified # sic\n\t}\n}\n",
			"# ours\n.:53 { # all\n\tkubernetes k8s.example clusterset.local in-addr.arpa { # the cluster\n\t\tmulticluster clusterset.local\n\t\tpods verified # sic\n\t}\n}\n"},
		{"a reverse zone first",
			". {\n  kubernetes 10.0.0.0/16 in-addr.arpa cluster.local {\n  }\n}\n",
			". {\n  kubernetes 10.0.0.0/16 in-addr.arpa cluster.local clusterset.local {\n  multicluster clusterset.local\n  }\n}\n"},
		{"line ends of Windows",
			".:53 {\r\n    kubernetes cluster.local {\r\n        ttl 5\r\n    }\r\n}\r\n",
			".:53 {\r\n    kubernetes cluster.local clusterset.local {\r\n        multicluster clusterset.local\n        ttl 5\r\n    }\r\n}\r\n"},
		{"several server blocks, of which one is the cluster's",
			"example.org:53 {\n    forward . 1.1.1.1\n}\ndns://.:53 {\n    kubernetes cluster.local {\n        ttl 5\n    }\n}\n",
			"example.org:53 {\n    forward . 1.1.1.1\n}\ndns://.:53 {\n    kubernetes cluster.local clusterset.local {\n        multicluster clusterset.local\n        ttl 5\n    }\n}\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := corefile.Enable(test.before)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.after, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if again, err := corefile.Enable(got); err != nil || again != got {
				t.Errorf("a second time it gives %q, %v", again, err)
			}
			if back, err := corefile.Disable(got); err != nil || back != test.before {
				t.Errorf("Disable does not give back what there was, %v:\n%s", err, cmp.Diff(test.before, back))
			}
			if corefile.Enabled(test.before) || !corefile.Enabled(got) {
				t.Errorf("Enabled is %v before and %v after", corefile.Enabled(test.before), corefile.Enabled(got))
			}
		})
	}
}

func TestEnableCompletesWhatWasBegunByHand(t *testing.T) {
	for name, half := range map[string]string{
		"only the zone":   strings.Replace(kubeadm, "kubernetes cluster.local", "kubernetes cluster.local clusterset.local", 1),
		"only the option": strings.Replace(kubeadm, "       pods", "       multicluster clusterset.local\n       pods", 1),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := corefile.Enable(half)
			if err != nil || got != kubeadmEnabled {
				t.Errorf("%v\n%s", err, cmp.Diff(kubeadmEnabled, got))
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	const uncertain = "expected plugin kubernetes once"
	for _, test := range []struct{ name, text, want string }{
		{"an empty file", " \n", uncertain},
		{"no plugin", ".:53 {\n  forward . 1.1.1.1\n}\n", uncertain},
		{"the cluster's domain in a block of its own", "cluster.local:53 {\n  kubernetes cluster.local\n}\n.:53 {\n  forward . 1.1.1.1\n}\n",
			uncertain},
		{"two of them", ".:53 {\n  kubernetes a.local {\n  }\n}\n.:54 {\n  kubernetes b.local {\n  }\n}\n", uncertain},
		{"no zone named", ".:53 {\n  kubernetes {\n    ttl 5\n  }\n}\n", uncertain},
		{"no block", ".:53 {\n    kubernetes cluster.local # plain\n    reload\n}\n", uncertain},
		{"a block on one line", ".:53 {\n  kubernetes cluster.local { ttl 5 }\n}\n", uncertain},
		{"braces that do not match", "{\n{\n kubernetes cluster.local {\n", "in matching braces"},
		{"a block of another implementation", "clusterset.local:53 {\n  forward . 10.1.1.1\n}\n" + kubeadm, "a server block takes all queries for clusterset.local"},
		{"an option without a zone", ".:53 {\n  kubernetes cluster.local {\n    multicluster\n  }\n}\n", uncertain},
		{"another zone of another implementation",
			".:53 {\n    kubernetes cluster.local other.example {\n        multicluster other.example\n    }\n}\n", uncertain},
		{"a plugin in a snippet", "(base) {\n  kubernetes cluster.local\n}\n.:53 {\n  import base\n}\n", uncertain},
		{"letters that are none", ".:53 {\n  kubernetes cluster\xff.local {\n  }\n}\n", uncertain},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := corefile.Enable(test.text)
			if err == nil {
				t.Fatalf("it gives\n%s", got)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q lacks %q", err, test.want)
			}
		})
	}
}

func TestABlockOfTheZonesOwnThatServesItIsLeftAlone(t *testing.T) {
	text := "clusterset.local:53 {\n  kubernetes clusterset.local {\n    multicluster clusterset.local\n  }\n}\n" + kubeadm
	if got, err := corefile.Enable(text); err != nil || got != text {
		t.Errorf("Enable gives %v\n%s", err, got)
	}
	if _, err := corefile.Disable(text); err == nil || !strings.Contains(err.Error(), "remove that block by hand") {
		t.Errorf("Disable gives %v, want a refusal", err)
	}
}

func TestDisableLeavesAFileWithoutTheZoneAlone(t *testing.T) {
	if got, err := corefile.Disable(kubeadm); err != nil || got != kubeadm {
		t.Errorf("it gives %v\n%s", err, cmp.Diff(kubeadm, got))
	}
}
