// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/binaries"
	"github.com/comity-mcs/comity/test/clusters/kind"
	"github.com/comity-mcs/comity/test/docs/guide"
	"github.com/comity-mcs/comity/test/install"
	"github.com/comity-mcs/comity/test/release"
)

const (
	// imageEnv names an image of Comity to test instead of one that is built now.
	imageEnv     = "COMITY_IMAGE"
	defaultImage = "comity:e2e"
	// agnhost serves and sends requests; Kubernetes' own tests use it.
	agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.53"
	// clusterSet is the set that both clusters belong to, as docs/install.md calls it.
	clusterSet = "example"
	// offlineEnv lists images that the Docker engine has, separated by spaces.
	offlineEnv = "KIND_OFFLINE_IMAGES"
	// serialEnv names a file that is to be made when the first Serial spec begins: the processors are idle from then on.
	serialEnv = "COMITY_E2E_SERIAL"
)

// Bounds. Comity itself needs a fraction of a second; Pods that start, kube-proxy
// and CoreDNS on a busy machine may need many.
const (
	soon      = 90 * time.Second
	unchanged = 3 * time.Second // how long nothing may happen
	// final is how long nothing must happen before a state counts as final: longer than the five
	// seconds for which a status that other clusters cause may wait to be written.
	final        = 5500 * time.Millisecond
	buildTimeout = 15 * time.Minute
	setUpTimeout = 20 * time.Minute
	// podSync lets kubelets give Pods a renewed certificate sooner than within their default, a minute.
	podSync = 10 * time.Second
	// suiteTimeout is shorter than that of go test, which would end us before the clusters are deleted.
	suiteTimeout = 48 * time.Minute
)

var (
	clusterA, clusterB *member
	// kubectl is the program that renders manifests and describes what failed.
	kubectl string
	// ready says that the set-up succeeded in this process, which is process 1.
	ready bool
	// failedMark is a file that exists once a spec failed in any process.
	failedMark string
	// shell is where docs/install.md is followed.
	shell *user
	begin = time.Now()
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
	reporter.Verbose = reporter.Verbose || testing.Verbose()
	reporter.NoColor = true // it is read in logs
	RunSpecs(t, "Comity on kind", suite, reporter)
}

// What failed stands at the end of the output, where the reader of a long log begins.
var _ = ReportAfterSuite("what failed", func(report Report) {
	for _, spec := range report.SpecReports {
		if spec.Failed() {
			fmt.Printf("%s %s: %.400s\n", spec.LeafNodeType, spec.LeafNodeText, strings.Join(strings.Fields(spec.Failure.Message), " "))
		}
	}
})

// step tells what comes now and how much time has passed.
func step(format string, args ...any) {
	GinkgoWriter.Printf("[%6.1fs] %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
}

// letPass waits until d has passed since then, and says so every 20 seconds.
func letPass(ctx context.Context, since time.Time, d time.Duration) {
	GinkgoHelper()
	said := time.Now()
	Eventually(ctx, func() bool {
		if time.Since(said) > 20*time.Second {
			said = time.Now()
			step("%.0f of %.0f s have passed", time.Since(since).Seconds(), d.Seconds())
		}
		return time.Since(since) >= d
	}).WithTimeout(2 * d).WithPolling(time.Second).Should(BeTrue())
}

// proxyModes are those of kube-proxy that users have most; what leaves a is routed by the newer one.
func proxyModes() map[string]string { return map[string]string{"a": "nftables", "b": "iptables"} }

// bothMembers are both clusters, in order.
func bothMembers() []*member { return []*member{clusterA, clusterB} }

// prepared is what process 1 made for all processes of the suite.
type prepared struct {
	// Dir is the home of whoever follows docs/install.md; clusters, programs and marks of the suite are in it, too.
	Dir, Plugin, Kubectl string
	// Image of Comity that the Docker engine has.
	Image string
}

// clusterOptions are those of the two clusters, which are kind's comity-e2e-a and comity-e2e-b.
func (p prepared) clusterOptions() kind.Options {
	return kind.Options{
		IDs: []string{"a", "b"}, Set: "e2e", Dir: filepath.Join(p.Dir, "clusters"), ProxyModes: proxyModes(), PodSync: podSync, Fresh: true, Out: GinkgoWriter,
	}
}

// Process 1 makes the clusters for all. Specs that keep to Services of their own run side by side; those that stop
// an agent, an API server or a connection are Serial, and begin when the others have ended.
var _ = SynchronizedBeforeSuite(func(ctx SpecContext) []byte {
	defer func() {
		if !ready {
			dump()
		}
	}()
	made := prepare(ctx)
	begins(made, startClusters(ctx, made))
	Expect(clusters.MergedKubeconfig(filepath.Join(made.Dir, "kubeconfig"), bothMembers()...)).To(Succeed())
	followGuide(ctx)
	startClients(ctx)
	ready = true
	shared, err := json.Marshal(made)
	Expect(err).NotTo(HaveOccurred())
	return shared
}, func(ctx SpecContext, shared []byte) {
	if ready {
		return
	}
	var made prepared
	Expect(json.Unmarshal(shared, &made)).To(Succeed())
	opened, err := kind.Open(ctx, made.clusterOptions())
	Expect(err).NotTo(HaveOccurred())
	begins(made, opened)
}, NodeTimeout(setUpTimeout))

// begins gives this process what process 1 made.
func begins(made prepared, pair []*kind.Cluster) {
	GinkgoHelper()
	kubectl, failedMark = made.Kubectl, filepath.Join(made.Dir, "failed")
	clusterA, clusterB = newMember(pair[0]), newMember(pair[1])
	shell = newUser(made)
}

// prepare makes image and programs.
func prepare(ctx context.Context) prepared {
	GinkgoHelper()
	dir, err := os.MkdirTemp("", "comity-e2e-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	step("build the image and the plugin")
	image, err := provideImage(ctx)
	Expect(err).NotTo(HaveOccurred())
	made := prepared{Dir: dir, Image: image, Plugin: compilePlugin(ctx, dir), Kubectl: findProgram(ctx, binaries.Kubectl)}
	Expect(os.MkdirAll(made.programs(), 0o755)).To(Succeed())
	Expect(os.Symlink(made.Kubectl, filepath.Join(made.programs(), "kubectl"))).To(Succeed())
	Expect(os.Symlink(findProgram(ctx, binaries.Helm), filepath.Join(made.programs(), "helm"))).To(Succeed())
	return made
}

// startClusters starts the two; not before everything is compiled, as a compiler on every core can keep a control
// plane from coming up in time.
func startClusters(ctx context.Context, made prepared) []*kind.Cluster {
	GinkgoHelper()
	step("remove what an earlier run may have left, and start two clusters")
	options := made.clusterOptions()
	Expect(kind.Delete(ctx, options.Set, options.IDs)).To(Succeed())
	options.Images = append(present(ctx, offlineImages()...), made.Image)
	started, err := kind.Start(ctx, options)
	DeferCleanup(func() {
		step("delete the clusters")
		Expect(kind.Close(started)).To(Succeed())
	})
	Expect(err).NotTo(HaveOccurred())
	return started
}

// followGuide does what docs/install.md says, from empty clusters to a first Service.
func followGuide(ctx context.Context) {
	GinkgoHelper()
	empty := time.Now()
	step("both clusters are empty: follow docs/install.md")
	shell.follow(ctx, guide.CertManager)
	Expect(inBoth(ctx, func(ctx context.Context, m *member) (err error) {
		inventory, err := m.inventory(ctx)
		before.Store(m.ID(), inventory)
		return err
	})).To(Succeed())
	for _, m := range bothMembers() {
		dnsBefore[m.ID()] = m.dnsConfiguration(ctx)
	}
	shell.follow(ctx, guide.Comity, guide.CoreDNS, guide.Join, guide.Verify)
	took := fmt.Sprintf("%.0f s from empty clusters to a `verify` that passed", time.Since(empty).Seconds())
	step("%s", took)
	AddReportEntry(took, ReportEntryVisibilityAlways)
	shell.follow(ctx, guide.First)
}

// startClients starts the Pods that send requests, and lets them reach the guide's first Service.
func startClients(ctx context.Context) {
	GinkgoHelper()
	step("start a client Pod in each cluster")
	Expect(inBoth(ctx, func(ctx context.Context, m *member) error { return m.apply(ctx, clientPod) })).To(Succeed())
	for _, m := range bothMembers() {
		m.awaitPeer(ctx)
		m.awaitPods(ctx, metav1.NamespaceDefault, "client", 1)
	}
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	for _, m := range bothMembers() {
		// The guide's Service has one IP family.
		m.expectAnswersAt(ctx, hostOf(web), servicePort, clusterA.awaitPods(ctx, web.Namespace, web.Name, 1)...)
	}
}

var _ = BeforeEach(func() {
	if path := os.Getenv(serialEnv); path != "" && CurrentSpecReport().IsSerial {
		Expect(os.WriteFile(path, nil, 0o600)).To(Succeed())
	}
})

// A failed spec shows what the clusters look like, before anything is taken down.
var _ = JustAfterEach(func() {
	if CurrentSpecReport().Failed() {
		Expect(os.WriteFile(failedMark, nil, 0o600)).To(Succeed())
		dump()
	}
})

// inBoth does the same in both clusters, side by side.
func inBoth(ctx context.Context, do func(context.Context, *member) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range bothMembers() {
		group.Go(func() error {
			if err := do(ctx, m); err != nil {
				return fmt.Errorf("cluster %s: %w", m.ID(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// offlineImages are agnhost and those of cert-manager, where a machine has them; a node pulls the others itself.
func offlineImages() []string {
	images := []string{agnhost}
	for _, image := range strings.Fields(os.Getenv(offlineEnv)) {
		if strings.Contains(image, "cert-manager") {
			images = append(images, image)
		}
	}
	return images
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

// compilePlugin compiles the kubectl plugin into dir, which is not on the PATH before the guide says so.
func compilePlugin(ctx context.Context, dir string) string {
	GinkgoHelper()
	plugin := filepath.Join(dir, "kubectl-comity")
	source, err := release.Describe(ctx, install.Root(), "")
	Expect(err).NotTo(HaveOccurred())
	Expect(source.Compile(ctx, release.Plugin, release.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}, plugin)).To(Succeed())
	return plugin
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

// findProgram finds kubectl or helm on the PATH, else fetches or builds it.
func findProgram(ctx context.Context, name string) string {
	GinkgoHelper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	provider, err := binaries.New()
	Expect(err).NotTo(HaveOccurred())
	paths, err := provider.Ensure(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	return paths[name]
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
