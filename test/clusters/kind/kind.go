// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package kind runs a set of clusters with kind, its command, in Docker: real
// kubelets, kube-proxy and CoreDNS, for end-to-end tests.
//
// It takes cluster ids and options, and the node image and images to load from
// the environment, and gives running clusters with disjoint networks,
// routes between all nodes for Pods, zones on the nodes and clusterset.local in
// DNS. The networks have both IP families, unless the options name one; where
// Docker has no IPv6 they have IPv4 alone, and a line says so. It never pulls what is loaded already and deletes only
// clusters that it made.
package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/test/clusters"
)

const (
	// NodeImageEnv names the node image; kind's own default if it is unset.
	NodeImageEnv = "KIND_NODE_IMAGE"
	// ImagesEnv lists images of the Docker engine, separated by spaces, to load into every node.
	ImagesEnv = "COMITY_KIND_IMAGES"

	// prefix begins the names that kind knows the clusters by.
	prefix = "comity-"
)

// Options say which clusters to make. Only IDs is needed.
type Options struct {
	// IDs are the cluster ids, in order of their networks.
	IDs []string
	// Set is a part of the names that kind knows the clusters by: comity-<set>-<id>, so that nobody deletes the
	// clusters of another set with the same ids. Without it, the names are comity-<id>.
	Set string
	// FirstNetwork numbers the network of the first cluster; default 1. See clusters.NetworkOf.
	FirstNetwork int
	// Family is that of Pods and Services; by default both where Docker has IPv6, else IPv4.
	Family clusters.Family
	// Workers are nodes beside the control plane, which takes Pods too when there are none.
	Workers int
	// ProxyModes are kube-proxy's by cluster id: iptables, nftables, ...; kind's default where there is none.
	ProxyModes map[string]string
	// NodeImage overrides NodeImageEnv.
	NodeImage string
	// Images of the Docker engine are loaded into every node, besides those of ImagesEnv.
	// Pods must use them with imagePullPolicy: IfNotPresent.
	Images []string
	// PodSync is how often kubelets give Pods changed Secrets; the kubelet's default, a minute, if it is zero.
	PodSync time.Duration
	// Manifests are applied besides the MCS API's definitions, for example config/crd by clusters.Files.
	Manifests [][]byte
	// Fresh leaves out the MCS API's definitions and clusterset.local in DNS, as clusters are before anything was installed.
	Fresh bool
	// Dir keeps the kubeconfigs. Default: a temporary one, which Close removes.
	Dir string
	// Out receives one line per step; default standard error.
	Out io.Writer
}

// Cluster is one kind cluster. It implements clusters.Cluster.
type Cluster struct {
	set, id   string
	tools     *tools
	dir       string
	removeDir string // what Close removes besides; empty if the caller owns the directory
	network   clusters.Network
	config    *rest.Config
	nodes     []node
}

var _ clusters.Cluster = (*Cluster)(nil)

// Start makes the clusters, side by side, and joins their Pod networks. On
// error nothing is left. It fails at once where no Docker engine answers, or a
// cluster of one of the names exists: Delete one that an earlier run left behind.
func Start(ctx context.Context, options Options) ([]*Cluster, error) {
	if options.NodeImage == "" {
		options.NodeImage = os.Getenv(NodeImageEnv)
	}
	options.Images = append(options.Images, strings.Fields(os.Getenv(ImagesEnv))...)
	if options.Out == nil {
		options.Out = os.Stderr
	}
	tools, err := findTools(ctx, options.Out)
	if err != nil {
		return nil, err
	}
	if err := tools.refuseExisting(ctx, options.Set, options.IDs); err != nil {
		return nil, err
	}
	temporary := ""
	if options.Dir == "" {
		if options.Dir, err = os.MkdirTemp("", "comity-kind-"); err != nil {
			return nil, fmt.Errorf("make a directory for kubeconfigs: %w", err)
		}
		temporary = options.Dir
	}
	all, err := plan(ctx, tools, options)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		c.removeDir = temporary
	}
	if err := startAll(ctx, all, options); err != nil {
		return nil, errors.Join(err, Close(all))
	}
	return all, nil
}

// Open gives the clusters that Start made in another process with the same options, of which Dir was one.
func Open(ctx context.Context, options Options) ([]*Cluster, error) {
	tools, err := findTools(ctx, io.Discard)
	if err != nil {
		return nil, err
	}
	all, err := plan(ctx, tools, options)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.config, err = clusters.LoadKubeconfig(c.Kubeconfig()); err != nil {
			return nil, err
		}
		if err := c.findNodes(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// plan gives names and networks to the clusters of options.
func plan(ctx context.Context, tools *tools, options Options) ([]*Cluster, error) {
	family := options.Family
	if family != clusters.IPv4 {
		hasIPv6, err := tools.hasIPv6(ctx)
		switch {
		case err != nil:
			return nil, err
		case !hasIPv6 && family != "":
			return nil, fmt.Errorf("clusters with addresses of %s cannot be made, because Docker gives nodes no IPv6 address", family)
		case !hasIPv6:
			family = clusters.IPv4
		default:
			family = cmp.Or(family, clusters.DualStack)
		}
	}
	all := make([]*Cluster, len(options.IDs))
	for i, id := range options.IDs {
		network, err := clusters.NetworkOf(max(options.FirstNetwork, 1)+i, family)
		if err != nil {
			return nil, err
		}
		all[i] = &Cluster{set: options.Set, id: id, tools: tools, network: network, dir: filepath.Join(options.Dir, id)}
	}
	return all, nil
}

func startAll(ctx context.Context, all []*Cluster, options Options) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(2) // each takes a whole core while it starts
	for _, c := range all {
		group.Go(func() error {
			if err := c.start(groupCtx, options); err != nil {
				return fmt.Errorf("start kind cluster %s: %w", c.id, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return Connect(ctx, all)
}

// Close deletes several clusters; all are tried.
func Close(all []*Cluster) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Delete deletes clusters of a set that Start made in another process.
func Delete(ctx context.Context, set string, ids []string) error {
	tools, err := findTools(ctx, io.Discard)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		errs = append(errs, (&Cluster{set: set, id: id, tools: tools}).Close())
	}
	return errors.Join(errs...)
}

// ID implements clusters.Cluster.
func (c *Cluster) ID() string { return c.id }

// Name is what kind calls the cluster; its nodes are containers <name>-control-plane, <name>-worker, ...
func (c *Cluster) Name() string { return nameOf(c.set, c.id) }

func nameOf(set, id string) string {
	if set != "" {
		id = set + "-" + id
	}
	return prefix + id
}

// Kubeconfig implements clusters.Cluster.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// RESTConfig implements clusters.Cluster.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// PeerServer implements clusters.Cluster: Pods of other clusters reach the node's address in Docker's network.
func (c *Cluster) PeerServer() string {
	return "https://" + net.JoinHostPort(c.nodes[0].address(), "6443")
}

// Network implements clusters.Cluster.
func (c *Cluster) Network() clusters.Network { return c.network }

// DNSAddress implements clusters.Cluster. On Linux the node's address can be reached from the host.
func (c *Cluster) DNSAddress() string {
	return net.JoinHostPort(c.nodes[0].address(), strconv.Itoa(dnsNodePort))
}

// Close implements clusters.Cluster. It works after a Start that failed half-way.
func (c *Cluster) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err := c.remove(ctx)
	if c.removeDir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
		_ = os.Remove(c.removeDir) // refuses until it is empty
	}
	return err
}

// remove deletes the nodes.
func (c *Cluster) remove(ctx context.Context) error {
	_, err := c.tools.run(ctx, c.tools.kind, nil, "delete", "cluster", "--name", c.Name(), "--kubeconfig", os.DevNull)
	return err
}

// LoadImages loads images of the Docker engine into every node.
func (c *Cluster) LoadImages(ctx context.Context, images ...string) error {
	if len(images) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	_, err := c.tools.run(ctx, c.tools.kind, nil, append([]string{"load", "docker-image", "--name", c.Name()}, images...)...)
	return err
}
