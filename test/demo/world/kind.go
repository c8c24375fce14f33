// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"os/exec"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/kind"
	"github.com/comity-mcs/comity/test/install"
	"github.com/comity-mcs/comity/test/release"
)

// image is what Comity is run from; not the name that `make image` gives.
const image = "comity:demo"

// inDocker runs kind clusters, and Comity there as users do.
type inDocker struct {
	world    *World
	clusters []*kind.Cluster
}

func (k *inDocker) build(ctx context.Context) error {
	return k.world.Tell.Wait("building image "+image, func() error {
		source, err := release.Describe(ctx, k.world.root, "")
		if err != nil {
			return err
		}
		return source.LoadImage(ctx, image)
	})
}

func (k *inDocker) start(ctx context.Context, ids []string) ([]clusters.Cluster, error) {
	images := []string{image}
	for _, used := range podImages() {
		// What the engine has, no node need download.
		if exec.CommandContext(ctx, "docker", "image", "inspect", used).Run() == nil {
			images = append(images, used)
		}
	}
	started, err := kind.Start(ctx, kind.Options{IDs: ids, Dir: k.world.path("clusters"), Images: images, Out: k.world.Tell.Lines()})
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

func (k *inDocker) install(ctx context.Context, m *Member) error {
	return install.Deploy(ctx, install.Target{Cluster: m.Cluster, Set: Set, Kubectl: k.world.kubectl, Dir: k.world.path("comity", m.ID())}, image)
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
