// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"fmt"
	"slices"
	"strings"
)

// Names of the programs that Ensure knows.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Etcd              = "etcd"
	CoreDNS           = "coredns"
	Kwok              = "kwok"
	Kind              = "kind"
	Helm              = "helm"
	Promtool          = "promtool"
)

// Versions that are built and fetched. They are those of test/tools/*.mod.
const (
	// newestKubernetes is what tests run on, oldestKubernetes the oldest minor version that
	// Comity supports, on which `make test-oldest` runs the suites of the API server.
	newestKubernetes = "v1.36.3"
	oldestKubernetes = "v1.32.5"

	EtcdVersion    = "v3.6.5"
	coreDNSVersion = "v1.15.0"
	kwokVersion    = "v0.8.0"
	kindVersion    = "v0.33.0"
	helmVersion    = "v3.22.0"

	promtoolVersion = "v0.316.0" // of Prometheus 3.16.0
)

// ControlPlane is what a cluster of plain processes needs, and kubectl.
func ControlPlane() []string {
	return []string{Etcd, APIServer, Kubectl, ControllerManager, Scheduler, Kwok, CoreDNS}
}

// program says where one program comes from.
type program struct {
	name    string
	version string
	// modfile is test/tools/<modfile>.mod, pkg the package it builds, ldflags what is set in it, tags the build tags.
	modfile string
	pkg     string
	ldflags string
	tags    string
	// release gives the public download for an operating system and architecture; nil if there is none.
	release func(s sources, goos, goarch string) *release
}

// release is one public download.
type release struct {
	url string
	// checksum is the address of its SHA-256: a bare digest, lines of "digest  name",
	// or GitHub's description of a release in JSON.
	checksum string
	// member is the path inside the archive at url; empty if url is the program itself.
	member string
}

// sources are the roots of the public downloads, without a slash at the end.
type sources struct{ kubernetes, github, githubAPI, helm string }

func publicSources() sources {
	return sources{
		kubernetes: "https://dl.k8s.io/release",
		github:     "https://github.com",
		githubAPI:  "https://api.github.com",
		helm:       "https://get.helm.sh",
	}
}

// file is the name of the program in the cache.
func (p program) file() string { return p.name + "-" + p.version }

func (p program) String() string { return p.name + " " + p.version }

func (p *Provider) lookup(name string) (program, error) {
	all := catalog(p.kubernetes)
	i := slices.IndexFunc(all, func(p program) bool { return p.name == name })
	if i < 0 {
		return program{}, fmt.Errorf("no program named %q is known: use one of the constants of package binaries", name)
	}
	return all[i], nil
}

// catalog lists all programs, those of Kubernetes in the version given.
func catalog(version string) []program {
	return []program{
		kubernetes(version, APIServer, "linux"),
		kubernetes(version, Kubectl, "linux", "darwin"),
		kubernetes(version, ControllerManager, "linux"),
		kubernetes(version, Scheduler, "linux"),
		{
			name: Etcd, version: EtcdVersion, modfile: "etcd", pkg: "go.etcd.io/etcd/server/v3",
			release: func(s sources, goos, goarch string) *release {
				if goos != "linux" { // other systems have zip archives: build there
					return nil
				}
				dir := fmt.Sprintf("etcd-%s-%s-%s", EtcdVersion, goos, goarch)
				base := s.github + "/etcd-io/etcd/releases/download/" + EtcdVersion
				return &release{url: base + "/" + dir + ".tar.gz", checksum: base + "/SHA256SUMS", member: dir + "/etcd"}
			},
		},
		{
			name: CoreDNS, version: coreDNSVersion, modfile: "coredns", pkg: "github.com/coredns/coredns",
			release: func(s sources, goos, goarch string) *release {
				url := fmt.Sprintf("%s/coredns/coredns/releases/download/%s/coredns_%s_%s_%s.tgz",
					s.github, coreDNSVersion, strings.TrimPrefix(coreDNSVersion, "v"), goos, goarch)
				return &release{url: url, checksum: url + ".sha256", member: "coredns"}
			},
		},
		{
			name: Kwok, version: kwokVersion, modfile: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok",
			release: func(s sources, goos, goarch string) *release {
				// No file of checksums is published beside it; the description of the release has the digest.
				return &release{
					url:      fmt.Sprintf("%s/kubernetes-sigs/kwok/releases/download/%s/kwok-%s-%s", s.github, kwokVersion, goos, goarch),
					checksum: s.githubAPI + "/repos/kubernetes-sigs/kwok/releases/tags/" + kwokVersion,
				}
			},
		},
		{
			name: Helm, version: helmVersion, modfile: "helm", pkg: "helm.sh/helm/v3/cmd/helm",
			ldflags: " -X helm.sh/helm/v3/internal/version.version=" + helmVersion,
			release: func(s sources, goos, goarch string) *release {
				url := fmt.Sprintf("%s/helm-%s-%s-%s.tar.gz", s.helm, helmVersion, goos, goarch)
				return &release{url: url, checksum: url + ".sha256sum", member: goos + "-" + goarch + "/helm"}
			},
		},
		{
			// Without the clients of clouds it compiles in two minutes. Its download is that of the whole of Prometheus.
			name: Promtool, version: promtoolVersion, modfile: "promtool", pkg: "github.com/prometheus/prometheus/cmd/promtool", tags: "remove_all_sd",
			release: func(sources, string, string) *release { return nil },
		},
		{
			name: Kind, version: kindVersion, modfile: "kind", pkg: "sigs.k8s.io/kind",
			release: func(s sources, goos, goarch string) *release {
				url := fmt.Sprintf("%s/kubernetes-sigs/kind/releases/download/%s/kind-%s-%s", s.github, kindVersion, goos, goarch)
				return &release{url: url, checksum: url + ".sha256sum"}
			},
		},
	}
}

// kubernetes describes a command of k8s.io/kubernetes, prebuilt for the systems named.
func kubernetes(version, name string, prebuilt ...string) program {
	modfile := "kubernetes"
	if version == oldestKubernetes {
		modfile = "kubernetes-oldest"
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	set := func(key, value string) string { return " -X k8s.io/component-base/version." + key + "=" + value }
	return program{
		name: name, version: version, modfile: modfile, pkg: "k8s.io/kubernetes/cmd/" + name,
		// Without these the API server calls itself v0.0.0 and charts refuse it.
		ldflags: set("gitVersion", version) + set("gitMajor", major) + set("gitMinor", minor) +
			set("gitTreeState", "clean") + set("gitCommit", "module-proxy"),
		release: func(s sources, goos, goarch string) *release {
			if !slices.Contains(prebuilt, goos) {
				return nil
			}
			url := fmt.Sprintf("%s/%s/bin/%s/%s/%s", s.kubernetes, version, goos, goarch, name)
			return &release{url: url, checksum: url + ".sha256"}
		},
	}
}
