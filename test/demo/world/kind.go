// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/kind"
	"github.com/comity-mcs/comity/test/install"
	"github.com/comity-mcs/comity/test/release"
)

const (
	// repository and tag are the image that Comity is run from; not the one that `make image` makes.
	repository, tag = "comity", "demo"
	// certManagerEnv names cert-manager's chart: a file, or a reference to a registry.
	certManagerEnv = "CERT_MANAGER_CHART"
	// installTimeout bounds one command that waits for Pods to start.
	installTimeout = 8 * time.Minute
)

// inDocker runs kind clusters, and Comity there as users do: with helm and the kubectl plugin.
type inDocker struct {
	world    *World
	clusters []*kind.Cluster
}

func (k *inDocker) build(ctx context.Context) error {
	source, err := release.Describe(ctx, k.world.root, "")
	if err != nil {
		return err
	}
	image := repository + ":" + tag
	k.world.Out.Command("make", "image", "IMAGE="+image)
	if err := k.world.Out.Wait("make image", func() error { return source.LoadImage(ctx, image) }); err != nil {
		return err
	}
	k.world.Out.Command("go", "build", "./cmd/kubectl-comity")
	return k.world.Out.Wait("go build", func() error {
		platform := release.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
		return source.Compile(ctx, release.Plugin, platform, k.world.path("bin", "kubectl-comity"))
	})
}

func (k *inDocker) start(ctx context.Context, ids []string) ([]clusters.Cluster, error) {
	images := []string{repository + ":" + tag}
	for _, used := range append(podImages(), strings.Fields(os.Getenv("KIND_OFFLINE_IMAGES"))...) {
		// What the engine has, no node need download.
		if exec.CommandContext(ctx, "docker", "image", "inspect", used).Run() == nil {
			images = append(images, used)
		}
	}
	started, err := kind.Start(ctx, kind.Options{IDs: ids, Family: k.world.family, Dir: k.world.path("clusters"), Images: images, Fresh: true, Out: k.world.Out.Lines()})
	if err != nil {
		return nil, err
	}
	k.clusters = started
	return asClusters(started), nil
}

// podImages are those of the manifests.
func podImages() []string {
	return []string{"registry.k8s.io/e2e-test-images/agnhost:2.53", "nicolaka/netshoot:v0.15"}
}

// install does what docs/install.md says, in all clusters side by side.
func (k *inDocker) install(ctx context.Context) error {
	certManager := []string{cmp.Or(os.Getenv(certManagerEnv), "oci://quay.io/jetstack/charts/cert-manager"),
		"--namespace", "cert-manager", "--create-namespace", "--set", "crds.enabled=true", "--set", "startupapicheck.enabled=false"}
	if err := k.helm(ctx, "cert-manager", func(string) []string { return certManager }); err != nil {
		return err
	}
	return k.helm(ctx, "comity", func(id string) []string {
		return []string{"charts/comity", "--namespace", install.Namespace, "--create-namespace",
			"--set", "clusterID=" + id, "--set", "clusterset=" + Set, "--set", "image.registry=", "--set", "image.repository=" + repository, "--set", "image.tag=" + tag}
	})
}

// helm installs a release in every cluster.
func (k *inDocker) helm(ctx context.Context, release string, args func(id string) []string) error {
	commands := map[string][]string{}
	for _, id := range IDs() {
		command := append([]string{"helm", "upgrade", "--install", release}, args(id)...)
		commands[id] = append(command, "--kube-context", id, "--wait", "--timeout", "5m")
		k.world.Out.Command(commands[id]...)
	}
	return k.world.Out.Wait("helm upgrade --install "+release, func() error {
		group, ctx := errgroup.WithContext(ctx)
		for _, id := range IDs() {
			group.Go(func() error {
				if out, err := k.world.run(ctx, installTimeout, commands[id]...); err != nil {
					return fmt.Errorf("helm upgrade --install %s in %s: %w\n%s", release, id, err, out)
				}
				return nil
			})
		}
		return group.Wait()
	})
}

// join lets CoreDNS serve the clusterset and joins all members, by the plugin.
func (k *inDocker) join(ctx context.Context) error {
	for _, command := range [][]string{{"coredns", "enable"}, {"join"}} {
		words := append(append([]string{"kubectl", "comity"}, command...), IDs()...)
		k.world.Out.Command(words...)
		var out string
		err := k.world.Out.Wait(strings.Join(command, " "), func() (err error) {
			out, err = k.world.run(ctx, installTimeout, words...)
			return err
		})
		k.world.Out.Output(out)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(words, " "), err)
		}
	}
	return nil
}

func (k *inDocker) close() error { return kind.Close(k.clusters) }

func (k *inDocker) place() string { return "in a Deployment in " + install.Namespace }

func (k *inDocker) logs(id string) string {
	return "kubectl --context " + id + " -n " + install.Namespace + " logs deployment/comity --all-pods"
}

func (k *inDocker) tail(ctx context.Context, id string) string {
	out, err := k.world.Kubectl(ctx, id, "-n", install.Namespace, "logs", "deployment/comity", "--all-pods", "--tail=15")
	if err != nil {
		return out + err.Error()
	}
	return out
}

// asClusters gives clusters of one kind as what they have in common.
func asClusters[C clusters.Cluster](from []C) []clusters.Cluster {
	all := make([]clusters.Cluster, len(from))
	for i, c := range from {
		all[i] = c
	}
	return all
}
