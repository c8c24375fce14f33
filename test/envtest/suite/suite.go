// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package suite is the set-up that the suites on real API servers share.
//
// It takes the name of a suite, the bounds of its waits and what is special about
// its API servers; it gives a scheme, API servers that know the kinds of the MCS
// API and of Comity, and clients. What it starts ends with the suite. It fails the
// running spec itself, and asserts nothing about Comity.
package suite

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/test/clusters"
)

// Waits are the defaults of Eventually and Consistently. Those that are zero stay
// Gomega's.
type Waits struct {
	// Soon bounds every Eventually, Quiet is how long every Consistently checks,
	// and Poll how often both do.
	Soon, Quiet, Poll time.Duration
}

// Run runs the specs of a suite.
func Run(t *testing.T, name string, waits Waits) {
	t.Helper()
	gomega.RegisterFailHandler(ginkgo.Fail)
	if waits.Soon > 0 {
		gomega.SetDefaultEventuallyTimeout(waits.Soon)
	}
	if waits.Quiet > 0 {
		gomega.SetDefaultConsistentlyDuration(waits.Quiet)
	}
	if waits.Poll > 0 {
		gomega.SetDefaultEventuallyPollingInterval(waits.Poll)
		gomega.SetDefaultConsistentlyPollingInterval(waits.Poll)
	}
	// One order of containers, so that what passed passes again.
	config, reporter := ginkgo.GinkgoConfiguration()
	config.RandomSeed = 1
	ginkgo.RunSpecs(t, name, config, reporter)
}

// LogToGinkgo shows the logs of controllers with the spec that fails.
func LogToGinkgo() {
	log.SetLogger(zap.New(zap.WriteTo(ginkgo.GinkgoWriter), zap.UseDevMode(true)))
}

// Evaluated makes a request again for which Comity, or the API server that waits for Comity, had
// no time, as on a busy machine: at most five times.
func Evaluated(request func() error) (err error) {
	for range 5 {
		if err = request(); !IsLate(err) {
			break
		}
	}
	return err
}

// IsLate reports whether the answer to a request is that there was no time to evaluate it: none
// to start a process for it, or too little for a policy, or more than the API server waits for.
func IsLate(err error) bool {
	return err != nil && slices.ContainsFunc([]string{
		"the policies were not evaluated in time", "none ended in time", "it took too long and was stopped", "deadline exceeded",
	}, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// Scheme knows the kinds of Kubernetes, of the MCS API and of Comity.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, mcsv1alpha1.Install, mcsv1beta1.Install,
		policyv1alpha1.AddToScheme, exchangev1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// APIServer is an API server that knows the kinds of the MCS API and of Comity.
func APIServer() *envtest.Environment {
	ginkgo.GinkgoHelper()
	env := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join("..", "..", "..", "config", "crd")}, ErrorIfCRDPathMissing: true,
		// 20 s are not enough for several that end their watches at once on a busy machine.
		ControlPlaneStopTimeout: 2 * time.Minute,
	}
	for _, text := range clusters.MCSDefinitions() {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		gomega.Expect(yaml.Unmarshal(text, definition)).To(gomega.Succeed())
		env.CRDs = append(env.CRDs, definition)
	}
	return env
}

// Start starts API servers side by side, without a limit on the client's side.
func Start(environments ...*envtest.Environment) []*rest.Config {
	ginkgo.GinkgoHelper()
	gomega.Expect(os.Getenv("KUBEBUILDER_ASSETS")).NotTo(gomega.BeEmpty(),
		"KUBEBUILDER_ASSETS is not set; it must name the directory with etcd, kube-apiserver and kubectl (make envtest sets it)")
	configs, errs := make([]*rest.Config, len(environments)), make([]error, len(environments))
	var started sync.WaitGroup
	for i, env := range environments {
		ginkgo.DeferCleanup(func() { gomega.Expect(env.Stop()).To(gomega.Succeed()) })
		started.Go(func() { configs[i], errs[i] = env.Start() })
	}
	started.Wait()
	for i, config := range configs {
		gomega.Expect(errs[i]).NotTo(gomega.HaveOccurred())
		config.QPS = -1
	}
	return configs
}

// Client reads and writes without a cache.
func Client(config *rest.Config) client.Client {
	ginkgo.GinkgoHelper()
	c, err := client.New(config, client.Options{Scheme: Scheme()})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return c
}
