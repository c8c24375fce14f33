// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/test/clusters/binaries"
	"github.com/comity-mcs/comity/test/clusters/kind"
	"github.com/comity-mcs/comity/test/install"
	"github.com/comity-mcs/comity/test/release"
)

const (
	// imageEnv names an image of Comity to test instead of one that is built now.
	imageEnv     = "COMITY_IMAGE"
	defaultImage = "comity:e2e"
	// certManagerEnv names cert-manager's chart: a file, or a reference to a registry.
	certManagerEnv     = "CERT_MANAGER_CHART"
	defaultCertManager = "oci://quay.io/jetstack/charts/cert-manager"
	// network numbers the cluster's, beyond those of package e2e.
	network = 20
)

// Bounds. Helm's own waits end before the commands do.
const (
	soon           = 90 * time.Second
	commandTimeout = 6 * time.Minute
	setUpTimeout   = 25 * time.Minute
	specTimeout    = 12 * time.Minute
	suiteTimeout   = 28 * time.Minute
	requestTimeout = 30 * time.Second
	// podSync lets the kubelet give Pods a renewed certificate sooner than within its default, a minute.
	podSync = 10 * time.Second
)

var (
	// image is the one of Comity under test; chart the folder of the chart.
	image, chart string
	cluster      *kind.Cluster
	api          client.Client
	// dir is the home of whoever runs helm and kubectl.
	dir   string
	env   []string
	begin = time.Now()
)

func TestChart(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(soon)
	SetDefaultEventuallyPollingInterval(time.Second)
	EnforceDefaultTimeoutsWhenUsingContexts()
	log.SetLogger(zap.New(zap.WriteTo(GinkgoWriter)))
	suite, reporter := GinkgoConfiguration()
	suite.Timeout = suiteTimeout
	reporter.Verbose = testing.Verbose()
	reporter.NoColor = true // it is read in logs
	RunSpecs(t, "the chart on kind", suite, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ids := []string{"chart"}
	Expect(kind.Delete(ctx, "", ids)).To(Succeed())
	chart = filepath.Join(install.Root(), "charts", "comity")
	provider, err := binaries.New()
	Expect(err).NotTo(HaveOccurred())
	provider.Out = GinkgoWriter
	programs, err := provider.Ensure(ctx, binaries.Helm, binaries.Kubectl)
	Expect(err).NotTo(HaveOccurred())

	step("build the image")
	image = cmp.Or(os.Getenv(imageEnv), defaultImage)
	if os.Getenv(imageEnv) == "" {
		source, err := release.Describe(ctx, install.Root(), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(source.LoadImage(ctx, image)).To(Succeed())
	}
	step("start a cluster")
	started, err := kind.Start(ctx, kind.Options{IDs: ids, FirstNetwork: network, PodSync: podSync, Images: append(offlineImages(ctx), image), Fresh: true, Out: GinkgoWriter})
	DeferCleanup(func() { Expect(kind.Close(started)).To(Succeed()) })
	Expect(err).NotTo(HaveOccurred())
	cluster = started[0]
	config := cluster.RESTConfig()
	config.Timeout = requestTimeout
	api, err = client.New(config, client.Options{Scheme: newScheme()})
	Expect(err).NotTo(HaveOccurred())

	dir = GinkgoT().TempDir()
	bin := filepath.Join(dir, "bin")
	Expect(os.Mkdir(bin, 0o755)).To(Succeed())
	for _, name := range []string{binaries.Helm, binaries.Kubectl} {
		Expect(os.Symlink(programs[name], filepath.Join(bin, name))).To(Succeed())
	}
	// Nothing of the developer's own is read or written.
	env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir, "XDG_DATA_HOME="+dir,
		"KUBECONFIG="+cluster.Kubeconfig(), "KUBECACHEDIR="+filepath.Join(dir, "cache"), "KUBERC=off")

	// Whoever has no cert-manager learns that before anything is installed.
	Expect(fails(ctx, "helm install comity %s --namespace comity-system --create-namespace %s", chart, settings())).
		To(ContainSubstring("cert-manager is not installed in this cluster"))
	step("install cert-manager")
	certManager, more := os.Getenv(certManagerEnv), "--set startupapicheck.enabled=false" // its image is not among those of an offline machine
	if certManager == "" {
		certManager, more = defaultCertManager, ""
	}
	run(ctx, "helm install cert-manager %s --namespace cert-manager --create-namespace --set crds.enabled=true %s --wait --timeout 5m", certManager, more)
}, NodeTimeout(setUpTimeout))

// newScheme has the kinds that the specs read and write.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, certmanagerv1.AddToScheme, mcsv1beta1.Install} {
		Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

// settings are those that every release has here.
func settings() string {
	repository, tag, _ := strings.Cut(image, ":")
	return fmt.Sprintf("--set clusterID=a --set clusterset=example --set image.registry= --set image.repository=%s --set image.tag=%s", repository, cmp.Or(tag, "latest"))
}

// offlineImages are images of cert-manager that the Docker engine has; the node pulls them otherwise.
func offlineImages(ctx context.Context) []string {
	var found []string
	for _, candidate := range strings.Fields(os.Getenv("KIND_OFFLINE_IMAGES")) {
		if strings.Contains(candidate, "cert-manager") && exec.CommandContext(ctx, "docker", "image", "inspect", candidate).Run() == nil {
			found = append(found, candidate)
		}
	}
	return found
}

// step says what is next and how much time has passed.
func step(format string, args ...any) {
	GinkgoWriter.Printf("[%6.1fs] %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
}

// try runs a command line and gives all that it printed.
func try(ctx context.Context, format string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", fmt.Sprintf(format, args...))
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, 5*time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs a command line, which must succeed, and gives what it printed.
func run(ctx context.Context, format string, args ...any) string {
	GinkgoHelper()
	step("$ "+format, args...)
	out, err := try(ctx, format, args...)
	GinkgoWriter.Printf("    | %s\n", strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n    | "))
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// fails runs a command line, which must fail, and gives what it printed.
func fails(ctx context.Context, format string, args ...any) string {
	GinkgoHelper()
	step("$ "+format, args...)
	out, err := try(ctx, format, args...)
	GinkgoWriter.Printf("    | %s\n", strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n    | "))
	Expect(err).To(HaveOccurred(), "nothing refused this")
	return out
}
