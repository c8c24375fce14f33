// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/kind"
	"github.com/comity-mcs/comity/test/install"
	"github.com/comity-mcs/comity/test/release"
)

const (
	// imageEnv names an image of Comity to test instead of one that is built now.
	imageEnv     = "COMITY_IMAGE"
	defaultImage = "comity:e2e"
	// agnhost serves and sends requests; Kubernetes' own tests use it.
	agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.53"
	// clusterSet is the set that both clusters belong to.
	clusterSet = "e2e"
)

// Bounds. Comity itself needs a fraction of a second; Pods that start, kube-proxy
// and CoreDNS on a busy machine may need many.
const (
	soon         = 90 * time.Second
	unchanged    = 3 * time.Second // how long nothing may happen
	buildTimeout = 15 * time.Minute
	setUpTimeout = 20 * time.Minute
	// suiteTimeout is shorter than that of go test, which would end us before the clusters are deleted.
	suiteTimeout = 27 * time.Minute
)

var (
	clusterA, clusterB *member
	// kubectl is the program that renders manifests and describes what failed.
	kubectl string
	begin   = time.Now()
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(soon)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	SetDefaultConsistentlyDuration(unchanged)
	SetDefaultConsistentlyPollingInterval(200 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	log.SetLogger(zap.New(zap.WriteTo(GinkgoWriter)))
	suite, reporter := GinkgoConfiguration()
	suite.Timeout = suiteTimeout
	reporter.Verbose = testing.Verbose()
	reporter.NoColor = true // it is read in logs
	RunSpecs(t, "Comity on kind", suite, reporter)
	for _, failure := range failures {
		t.Error(failure)
	}
}

// failures stand at the end of the output, where the reader of a long log begins.
var failures []string

var _ = ReportAfterSuite("what failed", func(report Report) {
	for _, spec := range report.SpecReports {
		if spec.Failed() {
			failures = append(failures, fmt.Sprintf("%s %s: %.2000s", spec.LeafNodeType, spec.FullText(), spec.Failure.Message))
		}
	}
})

// step tells what comes now and how much time has passed.
func step(format string, args ...any) {
	GinkgoWriter.Printf("[%6.1fs] %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
}

// proxyModes are those of kube-proxy that users have most; what leaves a is routed by the newer one.
func proxyModes() map[string]string { return map[string]string{"a": "nftables", "b": "iptables"} }

// members are both clusters, in order.
func members() []*member { return []*member{clusterA, clusterB} }

var _ = BeforeSuite(func(ctx SpecContext) {
	ready := false
	defer func() {
		if !ready {
			dump()
		}
	}()
	step("remove what an earlier run may have left")
	ids := []string{"a", "b"}
	Expect(kind.Delete(ctx, ids)).To(Succeed())
	kubectl = findKubectl(ctx)

	step("build the image")
	image, err := provideImage(ctx)
	Expect(err).NotTo(HaveOccurred())
	// Only now: a compiler on every core can keep a control plane from coming up in time.
	step("start two clusters")
	started, err := kind.Start(ctx, kind.Options{
		IDs: ids, Images: present(ctx, agnhost), ProxyModes: proxyModes(), Out: GinkgoWriter,
	})
	DeferCleanup(func() {
		step("delete the clusters")
		Expect(kind.Close(started)).To(Succeed())
	})
	Expect(err).NotTo(HaveOccurred())
	clusterA, clusterB = newMember(started[0]), newMember(started[1])

	step("install Comity from image %s", image)
	Expect(inBoth(ctx, func(ctx context.Context, m *member) error { return m.install(ctx, image) })).To(Succeed())
	step("join the clusters, start a client Pod in each")
	Expect(join.Connect(ctx, side(clusterA, clusterB), side(clusterB, clusterA), join.Options{})).To(Succeed())
	Expect(inBoth(ctx, func(ctx context.Context, m *member) error { return m.apply(ctx, clientPod) })).To(Succeed())
	for _, m := range members() {
		m.awaitPeer(ctx)
		m.awaitPods(ctx, metav1.NamespaceDefault, "client", 1)
	}
	step("both clusters know each other")
	ready = true
}, NodeTimeout(setUpTimeout))

// A failed spec shows what the clusters look like, before anything is taken down.
var _ = JustAfterEach(func() {
	if CurrentSpecReport().Failed() {
		dump()
	}
})

// inBoth does the same in both clusters, side by side.
func inBoth(ctx context.Context, do func(context.Context, *member) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range members() {
		group.Go(func() error {
			if err := do(ctx, m); err != nil {
				return fmt.Errorf("cluster %s: %w", m.ID(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// side is how m takes part in a join with peer.
func side(m, peer *member) join.Cluster {
	return join.Cluster{
		ID: model.ClusterID(m.ID()), Set: clusterSet, Namespace: install.Namespace, ServiceAccount: install.Account,
		RESTConfig: m.RESTConfig(), Server: m.PeerServer(), AcceptedCIDRs: peer.Network().PodCIDRs,
	}
}

// provideImage gives an image of Comity that the Docker engine has.
func provideImage(ctx context.Context) (string, error) {
	image := os.Getenv(imageEnv)
	if image != "" && len(present(ctx, image)) > 0 {
		return image, nil
	}
	if image == "" {
		image = defaultImage
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	before := time.Now()
	source, err := release.Describe(ctx, install.Root(), "")
	if err != nil {
		return "", err
	}
	if err := source.LoadImage(ctx, image); err != nil {
		return "", err
	}
	step("image %s is built, in %.0fs", image, time.Since(before).Seconds())
	return image, nil
}

// present gives those images that the Docker engine has. A node pulls the others itself.
func present(ctx context.Context, images ...string) []string {
	var found []string
	for _, image := range images {
		if exec.CommandContext(ctx, "docker", "image", "inspect", image).Run() == nil {
			found = append(found, image)
		}
	}
	return found
}

// findKubectl finds it on the PATH, else fetches or builds it.
func findKubectl(ctx context.Context) string {
	GinkgoHelper()
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path
	}
	path, err := install.Kubectl(ctx)
	Expect(err).NotTo(HaveOccurred())
	return path
}

// awaitPeer waits until the webhook of m admits an export to the other cluster:
// then the peer's Secret was read there. Nothing is stored.
func (m *member) awaitPeer(ctx context.Context) {
	GinkgoHelper()
	probe := newExport(metav1.NamespaceDefault, "probe")
	probe.Annotations = map[string]string{model.AnnotationExportTo: m.other().ID()}
	Eventually(ctx, func() error { return m.client.Create(ctx, probe.DeepCopy(), client.DryRunAll) }).
		Should(Succeed(), "cluster %s does not know its peer", m.ID())
}
